-- enqueue_many_grouped_insert_jobs: Queue.enqueue_many with groups, delayed: the due times of jobs that wait are kept
-- Also: enqueue_many_blocked_insert_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.inserts.Inserts.insert_new > dialects.sqlite.SQLiteInserts.bulk_load
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, group_key, callback_id,
    available_at, created_at)
VALUES (:new_queue, :new_kind, :new_payload, :new_headers, :new_priority, :new_max_attempts, :new_unique_key,
    :new_group_key, :new_callback_id, :new_available_at, :new_created_at);
