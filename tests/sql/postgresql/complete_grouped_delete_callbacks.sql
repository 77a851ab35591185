-- complete_grouped_delete_callbacks: a job of a group and of a batch leaves: the next of its group is admitted, the
--   batch counts down
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.dependents.delete > store.dependents.finish > store.callbacks.count_down > store.callbacks._over
DELETE FROM jobs_callbacks
WHERE jobs_callbacks.id IN (:id_1);
