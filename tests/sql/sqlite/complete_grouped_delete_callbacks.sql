-- complete_grouped_delete_callbacks: a job of a group and of a batch leaves: the next of its group is admitted, the
--   batch counts down
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.on_leave.delete > groups.store.dependents.leave > groups.store.batches.count_down >
--   groups.store.batches._over
DELETE FROM jobs_callbacks
WHERE jobs_callbacks.id IN (:id_1);
