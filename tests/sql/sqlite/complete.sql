-- complete: LeasedJob.complete, removal="delete"
-- Also: complete_many, complete_lock_then_delete_delete, complete_lock_then_delete_many_delete,
--   complete_grouped_delete_jobs, bury_delete_jobs, bury_many_delete_jobs, bury_exhausted_delete_jobs,
--   pop_fast_path_delete, pop_fast_path_many_delete, pop_fast_path_slice_delete, pop_fast_path_slice_many_delete,
--   pop_fast_path_skip_locked_delete, pop_fast_path_skip_locked_many_delete, complete_and_claim_delete,
--   complete_and_claim_many_delete, complete_and_claim_slice_delete, complete_and_claim_slice_many_delete,
--   complete_and_claim_skip_locked_delete, complete_and_claim_skip_locked_many_delete,
--   stream_complete_keyed_delete_jobs
-- Transaction: none has begun, the statement commits by itself; or within BEGIN … COMMIT
-- Sent by: store.settle.delete
DELETE FROM jobs
WHERE id = :of_id
  AND version = :of_version;
