-- admit_update_jobs: the next job of a group is admitted after one has left
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.groups.admit > store.groups._admit > dialects.sqlite.SQLite.update_returning >
--   dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = CASE WHEN (jobs.due_at > (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)) THEN jobs.due_at ELSE (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) END,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END
WHERE jobs.id = :of_id
  AND jobs.version = :of_version
RETURNING id;
