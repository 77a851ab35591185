-- enqueue_many_blocked_insert_jobs: Queue.enqueue_many, a job of a group that has to wait and one without a group
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.postgresql.PostgreSQL.insert_new
-- Prepared once for each connection.
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, group_key, callback_id,
    available_at, created_at)
SELECT :new_queue::VARCHAR AS anon_1, :new_kind::VARCHAR AS anon_2, given.payload, :new_headers::VARCHAR AS anon_3,
    :new_priority::INTEGER AS anon_4, :new_max_attempts::INTEGER AS anon_5, :new_unique_key::VARCHAR AS anon_6,
    given.group_key, :new_callback_id::BIGINT AS anon_7,
    CASE WHEN (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT >= given.not_before) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT ELSE given.not_before END AS anon_8,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now_us_1
FROM unnest(:all_payload::TEXT[], :all_group_key::TEXT[], :all_not_before::BIGINT[]) WITH ORDINALITY AS given(payload,
    group_key, not_before, place)
ORDER BY given.place
RETURNING jobs.id;
