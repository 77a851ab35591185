-- enqueue_many: Queue.enqueue_many
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.postgresql.PostgreSQL.insert_new
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, available_at, created_at)
SELECT :param_1 AS anon_1, :param_2 AS anon_2, given.payload, :param_3 AS anon_3, :param_4 AS anon_4,
    :param_5 AS anon_5, :param_6 AS anon_6,
    CASE WHEN (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :param_7 >= :param_8) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :param_7 ELSE :param_8 END AS anon_7,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now_us_1
FROM unnest(:payloads::TEXT[]) WITH ORDINALITY AS given(payload, place)
ORDER BY given.place
RETURNING jobs.id;
