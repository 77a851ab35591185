-- admit_update_jobs: the next job of a group is admitted after one has left
-- Transaction: within BEGIN … COMMIT
-- Sent by: groups.store.groups.admit > groups.store.groups._admit > dialects.base.ReturningDialect.update_returning
-- Prepared once for each connection.
UPDATE jobs
SET available_at = CASE WHEN due_at > CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) THEN due_at ELSE CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) END,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END
WHERE id = :of_id::BIGINT
  AND version = :of_version::BIGINT
RETURNING id;
