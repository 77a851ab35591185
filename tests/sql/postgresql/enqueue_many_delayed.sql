-- enqueue_many_delayed: Queue.enqueue_many, jobs with delays and other options; on PostgreSQL what is the same in all
--   of them is no array
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > dialects.postgresql_inserts.PostgreSQLInserts.insert_new
-- Prepared once for each connection.
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, available_at, created_at)
SELECT :new_queue::VARCHAR, :new_kind::VARCHAR, given.payload, :new_headers::VARCHAR, :new_priority::INTEGER,
    given.max_attempts, :new_unique_key::VARCHAR,
    CASE WHEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + given.after >= :new_not_before::BIGINT THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + given.after ELSE :new_not_before::BIGINT END,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
FROM unnest(:all_payload::TEXT[], :all_max_attempts::INTEGER[],
    :all_after::BIGINT[]) WITH ORDINALITY AS given(payload, max_attempts, after, place)
ORDER BY given.place
RETURNING id;
