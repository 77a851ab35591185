-- Not sent to: mariadb
-- complete_many_delete: Queue.complete_many, removal="delete"
-- Also: complete_lock_then_delete_many_delete, bury_delete_jobs, bury_many_delete_jobs, bury_exhausted_delete_jobs,
--   pop_fast_path_many_delete, pop_fast_path_slice_many_delete, pop_fast_path_skip_locked_many_delete
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.delete > dialects.mysql.MySQL.delete_returning
DELETE FROM jobs USING jobs FORCE INDEX (PRIMARY)
WHERE id IN (:of_ids)
  AND (id, version) IN (:of_pairs);
