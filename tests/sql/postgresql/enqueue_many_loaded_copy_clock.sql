-- enqueue_many_loaded_copy_clock: Queue.enqueue_many, 100 plain jobs or more
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.load_jobs > dialects.postgresql_bulk.PostgreSQLBulk.load_new >
--   dialects.postgresql_bulk.PostgreSQLBulk.append
COPY jobs(queue, kind, headers, priority, max_attempts, unique_key, available_at, created_at, id, payload)
FROM STDIN;
