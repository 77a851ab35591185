-- complete_lock_then_delete_lock: LeasedJob.complete, removal="lock_then_delete"
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.lock > dialects.base.Dialect.hold
SELECT id, version
FROM jobs FORCE INDEX (PRIMARY)
WHERE id = :of_id
  AND version = :of_version
ORDER BY id
FOR UPDATE;
