-- enqueue_replace_select_jobs: Queue.enqueue, on_duplicate="replace", a live job has the key
-- Also: enqueue_debounce_select_jobs, enqueue_debounce_held_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.inserts.live_keys
SELECT jobs.queue, jobs.unique_key, jobs.id, jobs.version
FROM jobs
WHERE jobs.queue IN (:queue_1)
  AND jobs.unique_key IN (:unique_key_1);
