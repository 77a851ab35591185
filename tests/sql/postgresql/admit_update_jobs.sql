-- admit_update_jobs: the next job of a group is admitted after one has left
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.groups.admit > store.groups._admit > dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = CASE WHEN (jobs.due_at > CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)) THEN jobs.due_at ELSE CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) END,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END
WHERE jobs.id = :of_id
  AND jobs.version = :of_version
RETURNING jobs.id;
