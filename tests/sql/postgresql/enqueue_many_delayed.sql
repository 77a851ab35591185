-- enqueue_many_delayed: Queue.enqueue_many, jobs with delays and other options; on PostgreSQL what is the same in all
--   of them is no array
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.postgresql.PostgreSQL.insert_new
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, available_at, created_at)
SELECT :param_1 AS anon_1, :param_2 AS anon_2, given.payload, :param_3 AS anon_3, :param_4 AS anon_4,
    given.max_attempts, :param_5 AS anon_5,
    CASE WHEN (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + given.after >= :param_6) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + given.after ELSE :param_6 END AS anon_6,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now_us_1
FROM unnest(:payloads::TEXT[], :max_attemptss::INTEGER[], :afters::BIGINT[]) WITH ORDINALITY AS given(payload,
    max_attempts, after, place)
ORDER BY given.place
RETURNING jobs.id;
