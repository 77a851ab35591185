-- enqueue_grouped_insert_jobs: Queue.enqueue with a group
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.postgresql.PostgreSQL.insert_new
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, group_key, callback_id,
    available_at, created_at)
SELECT :param_1 AS anon_1, :param_2 AS anon_2, given.payload, :param_3 AS anon_3, :param_4 AS anon_4,
    :param_5 AS anon_5, :param_6 AS anon_6, :param_7 AS anon_7, :param_8 AS anon_8,
    CASE WHEN (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :param_9 >= :param_10) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :param_9 ELSE :param_10 END AS anon_9,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now_us_1
FROM unnest(:payloads::TEXT[]) WITH ORDINALITY AS given(payload, place)
ORDER BY given.place
RETURNING jobs.id;
