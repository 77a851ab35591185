-- stream_release_many_insert_jobs: the held jobs go back to the queue, several of them with a key
-- Also: stream_release_insert_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.releases.release > spark.streams.store.releases.release_row
INSERT INTO jobs(id, kind, payload, headers, priority, available_at, max_attempts, unique_key, created_at, last_error,
    group_key, callback_id, queue, version, attempts)
SELECT jobs_held.id, jobs_held.kind, jobs_held.payload, jobs_held.headers, jobs_held.priority, jobs_held.available_at,
    jobs_held.max_attempts, jobs_held.unique_key, jobs_held.created_at, jobs_held.last_error, jobs_held.group_key,
    jobs_held.callback_id, :param_1 AS anon_1,
    CASE WHEN (jobs_held.version < :version_1) THEN jobs_held.version + :version_2 ELSE jobs_held.version END AS anon_2,
    CASE WHEN (jobs_held.attempts > :attempts_1) THEN jobs_held.attempts - :attempts_2 ELSE :param_2 END AS anon_3
FROM jobs_held
WHERE jobs_held.stream = :stream_1
  AND NOT (jobs_held.unique_key IS NOT NULL OR jobs_held.group_key IS NOT NULL OR jobs_held.callback_id IS NOT NULL);
