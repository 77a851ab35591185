-- enqueue_batch_update_callbacks: Queue.enqueue_batch: the callback
-- Transaction: within BEGIN … COMMIT
-- Sent by: groups.store.batches.expect
UPDATE jobs_callbacks
SET size = :size, pending = :pending
WHERE jobs_callbacks.id = :id_1;
