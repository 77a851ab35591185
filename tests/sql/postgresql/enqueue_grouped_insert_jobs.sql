-- enqueue_grouped_insert_jobs: Queue.enqueue with a group
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.postgresql.PostgreSQL.insert_new
-- Prepared once for each connection.
INSERT INTO jobs(queue, kind, payload, headers, priority, available_at, max_attempts, unique_key, created_at,
    group_key, callback_id)
VALUES (:new_queue::VARCHAR, :new_kind::VARCHAR, :new_payload::VARCHAR, :new_headers::VARCHAR, :new_priority::INTEGER,
    CASE WHEN (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT >= :new_not_before::BIGINT) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT ELSE :new_not_before::BIGINT END,
    :new_max_attempts::INTEGER, :new_unique_key::VARCHAR,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT), :new_group_key::VARCHAR,
    :new_callback_id::BIGINT)
RETURNING jobs.id;
