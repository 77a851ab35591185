-- extend_many: Queue.extend_many
-- Also: extend_unlocked_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend > dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :now_us_1),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END
WHERE jobs.id = ANY(:param_1::BIGINT[])
  AND ((jobs.id, jobs.version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:param_1::BIGINT[], :param_2::BIGINT[]) AS wanted(id, version)
)) IS true
RETURNING jobs.id, jobs.available_at;
