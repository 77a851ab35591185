-- enqueue_batch_insert_callbacks: Queue.enqueue_batch: the callback
-- Transaction: within BEGIN … COMMIT
-- Sent by: groups.store.batches.make
INSERT INTO jobs_callbacks(queue, kind, payload, headers, priority, max_attempts, size, pending, created_at)
VALUES (:queue, :kind, :payload, :headers, :priority, :max_attempts, :size, :pending, (TIMESTAMPDIFF(MICROSECOND,
    '1970-01-01', UTC_TIMESTAMP(6))));
