-- claim_of_kind: jobs of one kind only
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.claim > dialects.postgresql.PostgreSQL.execute_claim
-- Prepared once for each connection.
WITH candidate AS (
    SELECT *
    FROM (
        SELECT jobs.id, jobs.version, jobs.priority, jobs.available_at, jobs.available_at AS head
        FROM jobs AS jobs
        WHERE jobs.queue = :in_queue::VARCHAR
          AND jobs.available_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
          AND jobs.delete_mark = 0
          AND jobs.kind = :of_kind::VARCHAR
          AND jobs.priority = :priority_0::INTEGER
          AND jobs.available_at >= :floor_0::BIGINT
        ORDER BY jobs.available_at, jobs.id
        LIMIT :read::INTEGER
    ) AS due_0
), unseen AS (
    SELECT gap_0.priority
    FROM (
        SELECT jobs.priority
        FROM jobs AS jobs
        WHERE jobs.queue = :in_queue::VARCHAR
          AND jobs.priority < :priority_0::INTEGER
        ORDER BY jobs.priority DESC
        LIMIT 1
    ) AS gap_0
    UNION ALL
    SELECT gap_1.priority
    FROM (
        SELECT jobs.priority
        FROM jobs AS jobs
        WHERE jobs.queue = :in_queue::VARCHAR
          AND jobs.priority > :priority_0::INTEGER
        ORDER BY jobs.priority
        LIMIT 1
    ) AS gap_1
), held AS (
    SELECT jobs.id
    FROM jobs AS jobs
    WHERE jobs.id = ANY(ARRAY(
        SELECT candidate.id
        FROM candidate
    ))
      AND ((jobs.id, jobs.version) IN (
        SELECT candidate.id, candidate.version
        FROM candidate
    )) IS TRUE
      AND NOT EXISTS(
        SELECT unseen.priority
        FROM unseen
        WHERE unseen.priority < jobs.priority
    )
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE jobs AS jobs
    SET due_at = jobs.available_at,
        available_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :lease::BIGINT,
        version = CASE WHEN jobs.version < 9223372036854775807 THEN jobs.version + 1 ELSE jobs.version END,
        attempts = CASE WHEN jobs.attempts < 2147483647 THEN jobs.attempts + 1 ELSE 2147483647 END,
        unknown_since = CASE WHEN jobs.claim_token IS NULL THEN jobs.unknown_since ELSE NULL END,
        claim_token = :token::VARCHAR, worker = :by_worker::VARCHAR, progress = NULL, progress_note = NULL,
        padding = NULL
    WHERE jobs.id = ANY(ARRAY(
        SELECT held.id
        FROM held
    ))
    RETURNING jobs.id, jobs.kind, jobs.payload, jobs.headers, jobs.priority, jobs.available_at, jobs.due_at,
        jobs.version, jobs.attempts, jobs.max_attempts, jobs.unique_key, jobs.created_at, jobs.last_error,
        jobs.group_key, jobs.callback_id
)
SELECT taken.id, taken.kind, taken.payload, taken.headers, taken.priority, taken.available_at, taken.due_at,
    taken.version, taken.attempts, taken.max_attempts, taken.unique_key, taken.created_at, taken.last_error,
    taken.group_key, taken.callback_id, NULL AS tried, NULL AS head
FROM taken
UNION ALL
SELECT NULL, NULL, NULL, NULL, candidate.priority, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    count(*), min(candidate.head)
FROM candidate
GROUP BY candidate.priority
UNION ALL
SELECT NULL, NULL, NULL, NULL, unseen.priority, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM unseen;
