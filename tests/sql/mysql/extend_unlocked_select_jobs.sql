-- extend_unlocked_select_jobs: a worker's heartbeat: rows that others have locked are stepped over
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend_unlocked
SELECT id
FROM jobs FORCE INDEX (PRIMARY)
WHERE id = :of_id
  AND version = :of_version;
