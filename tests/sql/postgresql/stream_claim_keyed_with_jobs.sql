-- stream_claim_keyed_with_jobs: the next batch of a stream, with jobs that have a key, a group or a callback; another
--   stream reads the queue too
-- Also: stream_claim_keyed_many_with_jobs
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
    ORDER BY jobs.priority, jobs.available_at, jobs.id
    LIMIT :param_3
    FOR UPDATE SKIP LOCKED
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
    RETURNING jobs.id AS id, jobs.kind AS kind, jobs.payload AS payload, jobs.headers AS headers,
        jobs.priority AS priority, jobs.available_at AS available_at, jobs.max_attempts AS max_attempts,
        jobs.unique_key AS unique_key, jobs.created_at AS created_at, jobs.last_error AS last_error,
        jobs.group_key AS group_key, jobs.callback_id AS callback_id,
        CASE WHEN (jobs.version < :version_2) THEN jobs.version + :version_3 ELSE jobs.version END AS version,
        CASE WHEN (jobs.attempts < :attempts_1) THEN jobs.attempts + :attempts_2 ELSE :param_4 END AS attempts
), kept AS (
    UPDATE jobs
    SET available_at = :param_5, due_at = jobs.available_at,
        version = CASE WHEN (jobs.version < :version_4) THEN jobs.version + :version_5 ELSE jobs.version END,
        attempts = CASE WHEN (jobs.attempts < :attempts_3) THEN jobs.attempts + :attempts_4 ELSE :param_6 END,
        claim_token = :param_7, worker = :param_8
    WHERE ctid = ANY(array((
        SELECT found.place
        FROM found
    )))
      AND jobs.queue = :queue_1
      AND jobs.available_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
      AND jobs.delete_mark = :delete_mark_1
      AND jobs.version < :version_1
      AND (jobs.unique_key IS NOT NULL OR jobs.group_key IS NOT NULL OR jobs.callback_id IS NOT NULL)
    RETURNING jobs.id AS id, jobs.kind AS kind, jobs.payload AS payload, jobs.headers AS headers,
        jobs.priority AS priority, jobs.due_at AS available_at, jobs.max_attempts AS max_attempts,
        jobs.unique_key AS unique_key, jobs.created_at AS created_at, jobs.last_error AS last_error,
        jobs.group_key AS group_key, jobs.callback_id AS callback_id, jobs.version AS version,
        jobs.attempts AS attempts
)
INSERT INTO jobs_held(stream, batch, id, kind, payload, headers, priority, available_at, max_attempts, unique_key,
    created_at, last_error, group_key, callback_id, version, attempts)
SELECT :param_1 AS anon_1, :param_2 AS anon_2, gone.id, gone.kind, gone.payload, gone.headers, gone.priority,
    gone.available_at, gone.max_attempts, gone.unique_key, gone.created_at, gone.last_error, gone.group_key,
    gone.callback_id, gone.version, gone.attempts
FROM gone
UNION ALL
SELECT :param_1 AS anon_1, :param_2 AS anon_2, kept.id, kept.kind, kept.payload, kept.headers, kept.priority,
    kept.available_at, kept.max_attempts, kept.unique_key, kept.created_at, kept.last_error, kept.group_key,
    kept.callback_id, kept.version, kept.attempts
FROM kept;
