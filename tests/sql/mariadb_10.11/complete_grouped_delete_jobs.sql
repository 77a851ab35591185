-- complete_grouped_delete_jobs: a job of a group and of a batch leaves: the next of its group is admitted, the batch
--   counts down
-- Transaction: within BEGIN … COMMIT
-- Sent by: groups.store.dependents.leave > store.on_leave.delete > store.settle.delete >
--   dialects.mysql.MySQL.delete_returning
DELETE FROM jobs
WHERE id = :of_id
  AND version = :of_version;
