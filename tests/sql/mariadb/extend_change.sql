-- extend_change: LeasedJob.extend
-- Also: extend_unlocked_one_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend > dialects.seam.ClaimSeam.update_returning
UPDATE jobs FORCE INDEX (PRIMARY)
SET available_at = ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :now_us_1),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END
WHERE jobs.id = :of_id
  AND jobs.version = :of_version;
