-- extend_many: Queue.extend_many
-- Also: extend_unlocked_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend > dialects.base.ReturningDialect.update_returning
-- Prepared once for each connection.
UPDATE jobs
SET available_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :lease::BIGINT,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END
WHERE id = ANY(:ids::BIGINT[])
  AND ((id, version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:ids::BIGINT[], :versions::BIGINT[]) AS wanted(id, version)
)) IS TRUE
RETURNING id, available_at;
