-- extend_unlocked_one_lock_jobs: a worker's heartbeat, one job
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend_unlocked > dialects.base.Dialect.hold
SELECT id, version
FROM jobs FORCE INDEX (PRIMARY)
WHERE id = :of_id
  AND version = :of_version
ORDER BY id
FOR UPDATE SKIP LOCKED;
