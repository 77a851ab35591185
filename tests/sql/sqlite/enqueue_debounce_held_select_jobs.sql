-- enqueue_debounce_held_select_jobs: Queue.enqueue, on_duplicate="debounce", a worker holds the live job that has the
--   key
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert > store.enqueue._replace
SELECT jobs.group_key
FROM jobs
WHERE id = :of_id
  AND version = :of_version;
