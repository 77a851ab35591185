-- enqueue_unique_for_insert_windows: Queue.enqueue with unique_for
-- Also: enqueue_unique_for_again_insert_windows
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_windowed > store.unique_key_ttl.take
INSERT INTO jobs_windows(queue, unique_key, job_id, ends_at)
VALUES (:queue, :unique_key, :job_id, :ends_at);
