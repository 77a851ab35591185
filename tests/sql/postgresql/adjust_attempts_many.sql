-- adjust_attempts_many: Queue.adjust_attempts
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.adjust_attempts > dialects.base.ReturningDialect.update_returning
-- Prepared once for each connection.
UPDATE jobs
SET version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END,
    attempts = CASE WHEN attempts + :attempts::INTEGER > 0 THEN attempts + :attempts::INTEGER ELSE 0 END
WHERE id = ANY(:ids::BIGINT[])
  AND ((id, version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:ids::BIGINT[], :versions::BIGINT[]) AS wanted(id, version)
)) IS TRUE
RETURNING id;
