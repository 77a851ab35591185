-- enqueue_many_insert_jobs: Queue.enqueue_many
-- Also: enqueue_shared_insert_jobs, enqueue_many_delayed_insert_jobs, enqueue_many_loaded_insert_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > dialects.inserts.Inserts.insert_new > dialects.sqlite.SQLiteInserts.bulk_load
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, available_at, created_at)
VALUES (:new_queue, :new_kind, :new_payload, :new_headers, :new_priority, :new_max_attempts, :new_unique_key,
    :new_available_at, :new_created_at);
