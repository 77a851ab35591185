-- enqueue_many_delayed: Queue.enqueue_many, jobs with options of their own
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.postgresql.PostgreSQL.insert_new
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, available_at, created_at)
SELECT :param_1 AS anon_1, given.kind, given.payload, given.headers, given.priority, :param_2 AS anon_2,
    :param_3 AS anon_3,
    CASE WHEN (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + given.after >= :param_4) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + given.after ELSE :param_4 END AS anon_4,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now_us_1
FROM unnest(:kinds::TEXT[], :payloads::TEXT[], :headerss::TEXT[], :prioritys::INTEGER[],
    :afters::BIGINT[]) WITH ORDINALITY AS given(kind, payload, headers, priority, after, place)
ORDER BY given.place
RETURNING jobs.id;
