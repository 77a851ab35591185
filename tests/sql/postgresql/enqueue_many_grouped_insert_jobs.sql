-- enqueue_many_grouped_insert_jobs: Queue.enqueue_many with groups, delayed: the due times of jobs that wait are kept
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.postgresql_inserts.PostgreSQLInserts.insert_new
-- Prepared once for each connection.
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, group_key, callback_id,
    available_at, created_at)
SELECT :new_queue::VARCHAR, :new_kind::VARCHAR, given.payload, :new_headers::VARCHAR, :new_priority::INTEGER,
    :new_max_attempts::INTEGER, :new_unique_key::VARCHAR, given.group_key, :new_callback_id::BIGINT,
    CASE WHEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + given.after >= :new_not_before::BIGINT THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + given.after ELSE :new_not_before::BIGINT END,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
FROM unnest(:all_payload::TEXT[], :all_group_key::TEXT[], :all_after::BIGINT[]) WITH ORDINALITY AS given(payload,
    group_key, after, place)
ORDER BY given.place
RETURNING id;
