-- extend: LeasedJob.extend
-- Also: extend_unlocked_one_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend > dialects.base.ReturningDialect.update_returning
-- Prepared once for each connection.
UPDATE jobs
SET available_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :lease::BIGINT,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END
WHERE id = :of_id::BIGINT
  AND version = :of_version::BIGINT
RETURNING id, available_at;
