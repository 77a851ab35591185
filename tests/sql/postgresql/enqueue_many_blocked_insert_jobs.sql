-- enqueue_many_blocked_insert_jobs: Queue.enqueue_many, a job of a group that has to wait and one without a group
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.postgresql.PostgreSQL.insert_new
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, group_key, callback_id,
    available_at, created_at)
SELECT :param_1 AS anon_1, :param_2 AS anon_2, given.payload, :param_3 AS anon_3, :param_4 AS anon_4,
    :param_5 AS anon_5, :param_6 AS anon_6, given.group_key, :param_7 AS anon_7,
    CASE WHEN (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :param_8 >= given.not_before) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :param_8 ELSE given.not_before END AS anon_8,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now_us_1
FROM unnest(:payloads::TEXT[], :group_keys::TEXT[], :not_befores::BIGINT[]) WITH ORDINALITY AS given(payload,
    group_key, not_before, place)
ORDER BY given.place
RETURNING jobs.id;
