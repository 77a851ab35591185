-- extend_unlocked_select_jobs: a worker's heartbeat: rows that others have locked are stepped over
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend_unlocked
SELECT jobs.id, jobs.version
FROM jobs FORCE INDEX (PRIMARY)
WHERE jobs.id = :of_id
  AND jobs.version = :of_version
ORDER BY jobs.id;
