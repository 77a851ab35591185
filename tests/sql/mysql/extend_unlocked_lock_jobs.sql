-- extend_unlocked_lock_jobs: a worker's heartbeat: rows that others have locked are stepped over
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend_unlocked > dialects.base.Dialect.hold
SELECT id, version
FROM jobs FORCE INDEX (PRIMARY)
WHERE id IN (:of_ids)
  AND (id, version) IN (:of_pairs)
ORDER BY id
FOR UPDATE SKIP LOCKED;
