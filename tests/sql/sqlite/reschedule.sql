-- reschedule: Queue.reschedule: another due time
-- Transaction: within BEGIN … COMMIT
-- Sent by: verbs.reschedule.change_waiting > dialects.sqlite.SQLite.update_returning >
--   dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = CASE WHEN (jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) AND CASE WHEN ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :param_1 >= :param_2) THEN (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :param_1 ELSE :param_2 END <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)) THEN jobs.available_at ELSE CASE WHEN ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :param_1 >= :param_2) THEN (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :param_1 ELSE :param_2 END END,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    claim_token = :claim_token, worker = :worker, progress = :progress, progress_note = :progress_note
WHERE jobs.id = :of_id
  AND jobs.version = :of_version
RETURNING id;
