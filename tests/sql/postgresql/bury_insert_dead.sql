-- bury_insert_dead: Queue.bury_many, and Queue.fail_many after the last attempt, one reason
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.bury
INSERT INTO jobs_dead(id, queue, kind, payload, headers, priority, attempts, max_attempts, unique_key, worker,
    created_at, group_key, callback_id, version, died_at, last_error)
SELECT id, queue, kind, payload, headers, priority, attempts, max_attempts, unique_key, worker, created_at, group_key,
    callback_id, CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END AS version,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS died_at, :error AS last_error
FROM jobs
WHERE id IN (:of_ids);
