-- bury_exhausted_insert_dead: a claim has found jobs whose attempts are used up
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.bury
INSERT INTO jobs_dead(id, queue, kind, payload, headers, priority, version, attempts, max_attempts, unique_key,
    worker, created_at, last_error, group_key, died_at)
SELECT jobs.id, jobs.queue, jobs.kind, jobs.payload, jobs.headers, jobs.priority,
    CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END AS anon_1,
    CASE WHEN (jobs.attempts > :attempts_1) THEN jobs.attempts - :attempts_2 ELSE :param_1 END AS anon_2,
    jobs.max_attempts, jobs.unique_key, jobs.worker, jobs.created_at, :param_2 AS anon_3, jobs.group_key,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now_us_1
FROM jobs
WHERE jobs.id IN (:id_1);
