-- enqueue_unique_for_delete_windows: Queue.enqueue with unique_for
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_windowed > store.unique_key_ttl.release
DELETE FROM jobs_windows
WHERE jobs_windows.queue = :queue_1
  AND jobs_windows.unique_key IN (:unique_key_1);
