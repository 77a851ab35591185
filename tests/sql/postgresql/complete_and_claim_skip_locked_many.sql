-- complete_and_claim_skip_locked_many: Queue.complete_and_claim, several jobs, skip_locked, when the last claim won
--   all it wanted
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.claim > dialects.postgresql.PostgreSQL.execute_claim >
--   dialects.postgresql.PostgreSQL._complete_and_claim
-- Prepared once for each connection.
WITH completed AS (
    DELETE FROM jobs
    WHERE id = ANY(:ids::BIGINT[])
      AND ((id, version) IN (
        SELECT wanted.id, wanted.version
        FROM unnest(:ids::BIGINT[], :versions::BIGINT[]) AS wanted(id, version)
    )) IS TRUE
      AND (
        SELECT set_config('lock_timeout', '50ms', true)
    ) IS NOT NULL
    RETURNING id
), candidate AS (
    SELECT jobs.id, jobs.version
    FROM jobs AS jobs
    WHERE jobs.queue = :in_queue::VARCHAR
      AND jobs.available_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
      AND jobs.delete_mark = 0
      AND jobs.priority = :priority_0::INTEGER
      AND jobs.available_at >= :floor_0::BIGINT
      AND (
        SELECT count(*)
        FROM completed
    ) >= 0
    ORDER BY jobs.available_at, jobs.id
    LIMIT :limit::INTEGER
    FOR UPDATE SKIP LOCKED
), won AS (
    UPDATE jobs AS jobs
    SET due_at = jobs.available_at,
        available_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :lease::BIGINT,
        version = CASE WHEN jobs.version < 9223372036854775807 THEN jobs.version + 1 ELSE jobs.version END,
        attempts = CASE WHEN jobs.attempts < 2147483647 THEN jobs.attempts + 1 ELSE 2147483647 END,
        unknown_since = CASE WHEN jobs.claim_token IS NULL THEN jobs.unknown_since ELSE NULL END,
        claim_token = :token::VARCHAR, worker = :by_worker::VARCHAR, progress = NULL, progress_note = NULL,
        padding = NULL
    WHERE jobs.id = ANY(ARRAY(
        SELECT candidate.id
        FROM candidate
    ))
      AND (
        SELECT other.priority
        FROM jobs AS other
        WHERE other.queue = :in_queue::VARCHAR
          AND other.priority < :priority_0::INTEGER
        ORDER BY other.priority DESC
        LIMIT 1
    ) IS NULL
    RETURNING jobs.id, jobs.kind, jobs.payload, jobs.headers, jobs.priority, jobs.available_at, jobs.due_at,
        jobs.version, jobs.attempts, jobs.max_attempts, jobs.unique_key, jobs.created_at, jobs.last_error,
        jobs.group_key, jobs.callback_id, NULLIF((
        SELECT count(*)
        FROM candidate
    ), :limit::INTEGER) AS tried
)
SELECT won.id, won.kind, won.payload, won.headers, won.priority, won.available_at, won.due_at, won.version,
    won.attempts, won.max_attempts, won.unique_key, won.created_at, won.last_error, won.group_key, won.callback_id,
    won.tried
FROM won
UNION ALL
SELECT count(*), NULL, string_agg(CAST(completed.id AS TEXT), ' '), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL
FROM completed;
