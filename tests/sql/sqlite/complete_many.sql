-- complete_many: Queue.complete_many, removal="delete"
-- Also: complete_lock_then_delete_many_delete, complete_grouped_delete_jobs, bury_delete_jobs, bury_many_delete_jobs,
--   bury_exhausted_delete_jobs, pop_fast_path_many_delete, pop_fast_path_slice_many_delete,
--   pop_fast_path_skip_locked_many_delete, complete_and_claim_many_delete, complete_and_claim_slice_many_delete,
--   complete_and_claim_skip_locked_many_delete
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.delete > dialects.sqlite.SQLite.delete_returning > dialects.sqlite.SQLite._delete_each
DELETE FROM jobs
WHERE id = :of_id
  AND version = :of_version;
