-- enqueue_many_grouped_insert_jobs: Queue.enqueue_many with groups, delayed: the due times of jobs that wait are kept
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.postgresql.PostgreSQL.insert_new
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, group_key, callback_id,
    available_at, created_at)
SELECT :param_1 AS anon_1, :param_2 AS anon_2, given.payload, :param_3 AS anon_3, :param_4 AS anon_4,
    :param_5 AS anon_5, :param_6 AS anon_6, given.group_key, :param_7 AS anon_7,
    CASE WHEN (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + given.after >= :param_8) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + given.after ELSE :param_8 END AS anon_8,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now_us_1
FROM unnest(:payloads::TEXT[], :group_keys::TEXT[], :afters::BIGINT[]) WITH ORDINALITY AS given(payload, group_key,
    after, place)
ORDER BY given.place
RETURNING jobs.id;
