-- enqueue_batch_select_callbacks: Queue.enqueue_batch: the callback
-- Also: complete_grouped_select_callbacks
-- Transaction: within BEGIN … COMMIT
-- Sent by: groups.store.batches.expect > groups.store.batches._over
SELECT jobs_callbacks.id, jobs_callbacks.queue, jobs_callbacks.kind, jobs_callbacks.payload, jobs_callbacks.headers,
    jobs_callbacks.priority, jobs_callbacks.max_attempts, jobs_callbacks.size, jobs_callbacks.pending,
    jobs_callbacks.dead, jobs_callbacks.cancelled, jobs_callbacks.created_at
FROM jobs_callbacks
WHERE jobs_callbacks.id IN (:id_1)
  AND jobs_callbacks.pending <= :pending_1
ORDER BY jobs_callbacks.id;
