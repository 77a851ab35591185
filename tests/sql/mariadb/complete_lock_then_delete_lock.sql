-- complete_lock_then_delete_lock: LeasedJob.complete, removal="lock_then_delete"
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.lock > dialects.seam.ClaimSeam.hold
SELECT jobs.id, jobs.version
FROM jobs FORCE INDEX (PRIMARY)
WHERE jobs.id = :of_id
  AND jobs.version = :of_version
ORDER BY jobs.id
FOR UPDATE;
