-- bury_many_insert_dead: Queue.bury_many, and Queue.fail_many after the last attempt, each with its own reason
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.bury
INSERT INTO jobs_dead(id, queue, kind, payload, headers, priority, attempts, max_attempts, unique_key, worker,
    created_at, group_key, callback_id, version, died_at, last_error)
SELECT id, queue, kind, payload, headers, priority, attempts, max_attempts, unique_key, worker, created_at, group_key,
    callback_id, CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END AS version,
    (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS died_at,
    CASE id WHEN :of_id_0 THEN :error_0 WHEN :of_id_1 THEN :error_1 END AS last_error
FROM jobs
WHERE id IN (:of_ids);
