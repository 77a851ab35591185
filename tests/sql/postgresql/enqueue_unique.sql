-- enqueue_unique: Queue.enqueue with a unique_key
-- Also: enqueue_replace_insert_jobs, enqueue_debounce_insert_jobs, enqueue_debounce_held_insert_jobs,
--   enqueue_unique_for_insert_jobs, enqueue_unique_for_again_insert_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.postgresql_inserts.PostgreSQLInserts.insert_new
-- Prepared once for each connection.
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, available_at, created_at)
SELECT :new_queue::VARCHAR, :new_kind::VARCHAR, given.payload, :new_headers::VARCHAR, :new_priority::INTEGER,
    :new_max_attempts::INTEGER, :new_unique_key::VARCHAR,
    CASE WHEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT >= :new_not_before::BIGINT THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT ELSE :new_not_before::BIGINT END,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
FROM unnest(:all_payload::TEXT[]) WITH ORDINALITY AS given(payload, place)
ORDER BY given.place
ON CONFLICT (queue, unique_key)
WHERE unique_key IS NOT NULL DO NOTHING
RETURNING id, queue, unique_key;
