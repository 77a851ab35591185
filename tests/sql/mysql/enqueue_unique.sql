-- enqueue_unique: Queue.enqueue with a unique_key
-- Also: enqueue_many_unique, enqueue_replace_select_jobs, enqueue_debounce_select_jobs,
--   enqueue_debounce_held_select_jobs, enqueue_unique_for_select_jobs, enqueue_unique_for_again_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.inserts.Inserts.insert_new > dialects.inserts.live_keys
SELECT jobs.queue, jobs.unique_key, jobs.id, jobs.version
FROM jobs
WHERE jobs.unique_queue IN (:unique_queue_1)
  AND jobs.unique_key IN (:unique_key_1);
