-- Not sent to: mariadb
-- complete: LeasedJob.complete, removal="delete"
-- Also: complete_lock_then_delete_delete, complete_grouped_delete_jobs, pop_fast_path_delete,
--   pop_fast_path_slice_delete, pop_fast_path_skip_locked_delete, stream_complete_keyed_delete_jobs
-- Transaction: none has begun, the statement commits by itself; or within BEGIN … COMMIT
-- Sent by: store.settle.delete
DELETE FROM jobs
WHERE id = :of_id
  AND version = :of_version;
