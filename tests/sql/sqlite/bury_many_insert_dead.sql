-- bury_many_insert_dead: Queue.bury_many, and Queue.fail_many after the last attempt, each with its own reason
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.bury
INSERT INTO jobs_dead(id, queue, kind, payload, headers, priority, version, attempts, max_attempts, unique_key,
    worker, created_at, last_error, group_key, died_at)
SELECT jobs.id, jobs.queue, jobs.kind, jobs.payload, jobs.headers, jobs.priority,
    CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END AS anon_1,
    jobs.attempts, jobs.max_attempts, jobs.unique_key, jobs.worker, jobs.created_at,
    CASE jobs.id WHEN :param_1 THEN :param_2 WHEN :param_3 THEN :param_4 END AS anon_2, jobs.group_key,
    (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) AS now_us_1
FROM jobs
WHERE jobs.id IN (:id_1);
