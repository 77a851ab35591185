-- Not sent to: mariadb_10.11
-- complete_many: Queue.complete_many, removal="delete"
-- Also: complete_lock_then_delete_many_delete, complete_grouped_delete_jobs, bury_delete_jobs, bury_many_delete_jobs,
--   bury_exhausted_delete_jobs, pop_fast_path_many_delete, pop_fast_path_slice_many_delete,
--   pop_fast_path_skip_locked_many_delete
-- Transaction: none has begun, the statement commits by itself; or within BEGIN … COMMIT
-- Sent by: store.settle.delete > dialects.mysql.MySQL.delete_returning
DELETE FROM jobs FORCE INDEX (PRIMARY)
WHERE id IN (:of_ids)
  AND (id, version) IN (:of_pairs)
RETURNING id;
