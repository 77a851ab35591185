-- enqueue_many: Queue.enqueue_many
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > dialects.postgresql_inserts.PostgreSQLInserts.insert_new
-- Prepared once for each connection.
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, available_at, created_at)
SELECT :new_queue::VARCHAR, :new_kind::VARCHAR, given.payload, :new_headers::VARCHAR, :new_priority::INTEGER,
    :new_max_attempts::INTEGER, :new_unique_key::VARCHAR,
    CASE WHEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT >= :new_not_before::BIGINT THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT ELSE :new_not_before::BIGINT END,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
FROM unnest(:all_payload::TEXT[]) WITH ORDINALITY AS given(payload, place)
ORDER BY given.place
RETURNING id;
