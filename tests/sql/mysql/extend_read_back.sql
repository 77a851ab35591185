-- extend_read_back: LeasedJob.extend
-- Also: extend_unlocked_one_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend > dialects.base.Dialect.update_returning
SELECT id, available_at
FROM jobs FORCE INDEX (PRIMARY)
WHERE id = :of_id
  AND version = :of_version;
