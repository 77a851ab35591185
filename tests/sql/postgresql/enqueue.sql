-- enqueue: Queue.enqueue; without a transaction, if the connection is in use
-- Also: complete_grouped_insert_jobs
-- Transaction: none has begun, the statement commits by itself; or within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > dialects.postgresql_inserts.PostgreSQLInserts.insert_new
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, available_at, created_at)
VALUES (:new_queue, :new_kind, :new_payload, :new_headers, :new_priority, :new_max_attempts, :new_unique_key,
    CASE WHEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after >= :new_not_before THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after ELSE :new_not_before END,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT))
RETURNING id;
