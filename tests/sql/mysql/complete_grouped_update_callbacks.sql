-- complete_grouped_update_callbacks: a job of a group and of a batch leaves: the next of its group is admitted, the
--   batch counts down
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.on_leave.delete > groups.store.dependents.leave > groups.store.batches.count_down
UPDATE jobs_callbacks
SET pending = (jobs_callbacks.pending - :pending_1), dead = (jobs_callbacks.dead + :dead_1),
    cancelled = (jobs_callbacks.cancelled + :cancelled_1)
WHERE jobs_callbacks.id = :id_1;
