-- extend_unlocked_lock_jobs: a worker's heartbeat: rows that others have locked are stepped over
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend_unlocked
SELECT jobs.id, jobs.version
FROM jobs FORCE INDEX (PRIMARY)
WHERE jobs.id IN (:of_ids)
  AND (jobs.id, jobs.version) IN (:of_pairs)
ORDER BY jobs.id
FOR UPDATE SKIP LOCKED;
