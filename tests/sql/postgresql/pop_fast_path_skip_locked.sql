-- pop_fast_path_skip_locked: Queue.pop, one job, skip_locked, when the last claim won all it wanted
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.claim > dialects.postgresql.PostgreSQL.execute_claim
-- Prepared once for each connection.
WITH candidate AS (
    SELECT jobs.id, jobs.version, jobs.group_key IS NOT NULL OR jobs.callback_id IS NOT NULL AS tied
    FROM jobs AS jobs
    WHERE jobs.queue = :in_queue::VARCHAR
      AND jobs.available_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
      AND jobs.delete_mark = 0
      AND jobs.priority = :priority_0::INTEGER
      AND jobs.available_at >= :floor_0::BIGINT
    ORDER BY jobs.available_at, jobs.id
    LIMIT :limit::INTEGER
    FOR UPDATE SKIP LOCKED
)
DELETE FROM jobs AS jobs
WHERE jobs.id = (
    SELECT candidate.id
    FROM candidate
)
  AND (
    SELECT other.priority
    FROM jobs AS other
    WHERE other.queue = :in_queue::VARCHAR
      AND other.priority < :priority_0::INTEGER
    ORDER BY other.priority DESC
    LIMIT 1
) IS NULL
  AND jobs.attempts < LEAST(jobs.max_attempts, 2147483646)
  AND jobs.version < 4611686018427387904
  AND NOT EXISTS(
    SELECT *
    FROM candidate
    WHERE candidate.tied
)
RETURNING jobs.id, jobs.kind, jobs.payload, jobs.headers, jobs.priority,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :lease::BIGINT AS available_at,
    jobs.available_at AS due_at,
    CASE WHEN jobs.version < 9223372036854775807 THEN jobs.version + 1 ELSE jobs.version END AS version,
    CASE WHEN jobs.attempts < 2147483647 THEN jobs.attempts + 1 ELSE 2147483647 END AS attempts, jobs.max_attempts,
    jobs.unique_key, jobs.created_at, jobs.last_error, jobs.group_key, jobs.callback_id;
