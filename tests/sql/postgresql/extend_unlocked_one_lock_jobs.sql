-- extend_unlocked_one_lock_jobs: a worker's heartbeat, one job
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend_unlocked > dialects.base.Dialect.hold
-- Prepared once for each connection.
SELECT id, version
FROM jobs
WHERE id = :of_id::BIGINT
  AND version = :of_version::BIGINT
ORDER BY id
FOR UPDATE SKIP LOCKED;
