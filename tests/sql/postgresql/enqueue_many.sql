-- enqueue_many: Queue.enqueue_many
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > dialects.postgresql.PostgreSQL.insert_new
-- Prepared once for each connection.
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, available_at, created_at)
SELECT :new_queue::VARCHAR AS anon_1, :new_kind::VARCHAR AS anon_2, given.payload, :new_headers::VARCHAR AS anon_3,
    :new_priority::INTEGER AS anon_4, :new_max_attempts::INTEGER AS anon_5, :new_unique_key::VARCHAR AS anon_6,
    CASE WHEN (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT >= :new_not_before::BIGINT) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT ELSE :new_not_before::BIGINT END AS anon_7,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now_us_1
FROM unnest(:all_payload::TEXT[]) WITH ORDINALITY AS given(payload, place)
ORDER BY given.place
RETURNING jobs.id;
