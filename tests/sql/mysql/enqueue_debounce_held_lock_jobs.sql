-- enqueue_debounce_held_lock_jobs: Queue.enqueue, on_duplicate="debounce", a worker holds the live job that has the
--   key
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.inserts.live_keys
SELECT jobs.queue, jobs.unique_key, jobs.id, jobs.version
FROM jobs
WHERE jobs.unique_queue IN (:unique_queue_1)
  AND jobs.unique_key IN (:unique_key_1)
FOR UPDATE;
