-- enqueue_unique_for_again_update_windows: Queue.enqueue with unique_for, an earlier use of the key has expired
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_windowed > store.unique_key_ttl.assign
UPDATE jobs_windows
SET job_id = :job_id
WHERE jobs_windows.queue = :queue_1
  AND jobs_windows.unique_key IN (:unique_key_1);
