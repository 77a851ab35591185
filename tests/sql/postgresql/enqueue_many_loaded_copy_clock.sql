-- enqueue_many_loaded_copy_clock: Queue.enqueue_many, 100 plain jobs or more
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.load_jobs > store.enqueue._load_plain >
--   dialects.postgresql_inserts.PostgreSQLInserts.load_new > dialects.postgresql_inserts._copy_lines >
--   dialects.copy_stream.copy_in
COPY jobs(queue, created_at, headers, max_attempts, priority, available_at, kind, payload, id)
FROM STDIN;
