-- extend_change: LeasedJob.extend
-- Also: extend_unlocked_one_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend > dialects.base.Dialect.update_returning
UPDATE jobs FORCE INDEX (PRIMARY)
SET available_at = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :lease,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END
WHERE id = :of_id
  AND version = :of_version;
