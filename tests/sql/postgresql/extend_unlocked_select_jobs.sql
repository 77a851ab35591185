-- extend_unlocked_select_jobs: a worker's heartbeat: rows that others have locked are stepped over
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend_unlocked
-- Prepared once for each connection.
SELECT id
FROM jobs
WHERE id = :of_id::BIGINT
  AND version = :of_version::BIGINT;
