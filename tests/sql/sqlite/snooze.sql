-- snooze: LeasedJob.snooze and LeasedJob.release
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.free > dialects.sqlite.SQLite.update_returning >
--   dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :param_1),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts > :attempts_1) THEN jobs.attempts - :attempts_2 ELSE :param_2 END,
    claim_token = :claim_token, worker = :worker, progress = :progress, progress_note = :progress_note,
    unknown_since = :unknown_since
WHERE jobs.id = :of_id
  AND jobs.version = :of_version
RETURNING id;
