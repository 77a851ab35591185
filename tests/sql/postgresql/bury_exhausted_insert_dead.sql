-- bury_exhausted_insert_dead: a claim has found jobs whose attempts are used up
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.bury
INSERT INTO jobs_dead(id, queue, kind, payload, headers, priority, max_attempts, unique_key, worker, created_at,
    group_key, callback_id, version, died_at, attempts, last_error)
SELECT id, queue, kind, payload, headers, priority, max_attempts, unique_key, worker, created_at, group_key,
    callback_id, CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END AS version,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS died_at,
    CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END AS attempts, :error AS last_error
FROM jobs
WHERE id IN (:of_ids);
