-- defer_unknown_many: Queue.defer_unknown_many, several jobs: no handler for the kind
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.free > dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + CASE jobs.id WHEN :param_1 THEN :param_2 WHEN :param_3 THEN :param_4 END),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts > :attempts_1) THEN jobs.attempts - :attempts_2 ELSE :param_5 END,
    claim_token = :claim_token, worker = :worker, last_error = :last_error, progress = :progress,
    progress_note = :progress_note, unknown_since = :unknown_since
WHERE jobs.id IN (:of_ids)
  AND (jobs.id, jobs.version) IN (VALUES (:of_pairs))
RETURNING id;
