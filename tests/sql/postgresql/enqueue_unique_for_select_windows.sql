-- enqueue_unique_for_select_windows: Queue.enqueue with unique_for
-- Also: enqueue_unique_for_again_select_windows
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_windowed > store.unique_key_ttl.take
SELECT jobs_windows.queue, jobs_windows.unique_key, jobs_windows.job_id, jobs_windows.ends_at
FROM jobs_windows
WHERE jobs_windows.queue IN (:queue_1)
  AND jobs_windows.unique_key IN (:unique_key_1);
