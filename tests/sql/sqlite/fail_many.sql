-- fail_many: Queue.fail_many, another attempt follows, each with its own delay and error
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.free > dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + CASE jobs.id WHEN :param_1 THEN :param_2 WHEN :param_3 THEN :param_4 END),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    claim_token = :claim_token, worker = :worker,
    last_error = CASE jobs.id WHEN :param_5 THEN :param_6 WHEN :param_7 THEN :param_8 END, progress = :progress,
    progress_note = :progress_note, unknown_since = :unknown_since
WHERE jobs.id IN (:of_ids)
  AND (jobs.id, jobs.version) IN (VALUES (:of_pairs))
RETURNING id;
