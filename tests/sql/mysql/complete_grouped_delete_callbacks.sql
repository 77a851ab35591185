-- complete_grouped_delete_callbacks: a job of a group and of a batch leaves: the next of its group is admitted, the
--   batch counts down
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.on_leave.delete > store.on_leave.finish > store.batches.count_down > store.batches._over
DELETE FROM jobs_callbacks
WHERE jobs_callbacks.id IN (:id_1);
