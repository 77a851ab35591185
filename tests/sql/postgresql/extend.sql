-- extend: LeasedJob.extend
-- Also: extend_unlocked_one_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend > dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :now_us_1),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END
WHERE jobs.id = :of_id
  AND jobs.version = :of_version
RETURNING jobs.id, jobs.available_at;
