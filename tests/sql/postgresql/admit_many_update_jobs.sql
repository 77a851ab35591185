-- admit_many_update_jobs: the next jobs of several groups
-- Transaction: within BEGIN … COMMIT
-- Sent by: groups.store.groups.admit > groups.store.groups._admit > dialects.base.ReturningDialect.update_returning
-- Prepared once for each connection.
UPDATE jobs
SET available_at = CASE WHEN due_at > CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) THEN due_at ELSE CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) END,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END
WHERE id = ANY(:ids::BIGINT[])
  AND ((id, version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:ids::BIGINT[], :versions::BIGINT[]) AS wanted(id, version)
)) IS TRUE
RETURNING id;
