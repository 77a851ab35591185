-- complete_lock_then_delete_lock: LeasedJob.complete, removal="lock_then_delete"
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.lock > dialects.base.Dialect.hold
-- Prepared once for each connection.
SELECT id, version
FROM jobs
WHERE id = :of_id::BIGINT
  AND version = :of_version::BIGINT
ORDER BY id
FOR UPDATE;
