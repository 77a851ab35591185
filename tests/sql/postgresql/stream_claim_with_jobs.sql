-- stream_claim_with_jobs: the next batch of a stream, no job with a key, a group or a callback in the queue
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.allocate > spark.streams.store.claim.claim_allowed >
--   spark.streams.store.claim._claim > spark.dialects.postgresql.PostgreSQLForSpark.move_to_held
WITH found AS (
    SELECT ctid AS place
    FROM jobs
    WHERE jobs.queue = :queue_1
      AND jobs.available_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
      AND jobs.delete_mark = :delete_mark_1
      AND jobs.version < :version_1
      AND NOT (jobs.unique_key IS NOT NULL OR jobs.group_key IS NOT NULL OR jobs.callback_id IS NOT NULL)
    ORDER BY jobs.priority, jobs.available_at, jobs.id
    LIMIT :param_3
), gone AS (
    DELETE FROM jobs
    WHERE ctid = ANY(array((
        SELECT found.place
        FROM found
    )))
      AND jobs.queue = :queue_1
      AND jobs.available_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
      AND jobs.delete_mark = :delete_mark_1
      AND jobs.version < :version_1
      AND NOT (jobs.unique_key IS NOT NULL OR jobs.group_key IS NOT NULL OR jobs.callback_id IS NOT NULL)
      AND NOT (jobs.unique_key IS NOT NULL OR jobs.group_key IS NOT NULL OR jobs.callback_id IS NOT NULL)
    RETURNING jobs.id AS id, jobs.kind AS kind, jobs.payload AS payload, jobs.headers AS headers,
        jobs.priority AS priority, jobs.available_at AS available_at, jobs.max_attempts AS max_attempts,
        jobs.unique_key AS unique_key, jobs.created_at AS created_at, jobs.last_error AS last_error,
        jobs.group_key AS group_key, jobs.callback_id AS callback_id,
        CASE WHEN (jobs.version < :version_2) THEN jobs.version + :version_3 ELSE jobs.version END AS version,
        CASE WHEN (jobs.attempts < :attempts_1) THEN jobs.attempts + :attempts_2 ELSE :param_4 END AS attempts
)
INSERT INTO jobs_held(stream, batch, id, kind, payload, headers, priority, available_at, max_attempts, unique_key,
    created_at, last_error, group_key, callback_id, version, attempts)
SELECT :param_1 AS anon_1, :param_2 AS anon_2, gone.id, gone.kind, gone.payload, gone.headers, gone.priority,
    gone.available_at, gone.max_attempts, gone.unique_key, gone.created_at, gone.last_error, gone.group_key,
    gone.callback_id, gone.version, gone.attempts
FROM gone;
