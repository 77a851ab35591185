-- complete: LeasedJob.complete, removal="delete"
-- Also: complete_lock_then_delete_delete, stream_complete_keyed_delete_jobs
-- Transaction: none has begun, the statement commits by itself; or within BEGIN … COMMIT
-- Sent by: store.settle.delete
-- Prepared once for each connection.
DELETE FROM jobs
WHERE id = :of_id::BIGINT
  AND version = :of_version::BIGINT;
