-- claim_fair_with_jobs_2: a fair queue, one job
-- Also: claim_fair_many_with_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.claim > fairness.dialects.postgresql.PostgreSQLFair.claim_now
-- Prepared once for each connection.
WITH RECURSIVE ahead_0(k, step) AS (
    SELECT CASE WHEN :floor_0::BIGINT < 9223372036854775807 THEN CASE WHEN :start_credit_0::INTEGER > 0
        THEN :cursor_0::VARCHAR ELSE (
        SELECT next.group_key
        FROM jobs AS next
        WHERE next.queue = :in_queue::VARCHAR
          AND next.priority = :priority_0::INTEGER
          AND next.group_key IS NOT NULL
          AND next.group_key ~ > ~ :cursor_0::VARCHAR
        ORDER BY next.group_key USING ~ < ~
        LIMIT 1
    ) END END, 1
    UNION ALL
    SELECT (
        SELECT next.group_key
        FROM jobs AS next
        WHERE next.queue = :in_queue::VARCHAR
          AND next.priority = :priority_0::INTEGER
          AND next.group_key IS NOT NULL
          AND next.group_key ~ > ~ ahead_0.k
        ORDER BY next.group_key USING ~ < ~
        LIMIT 1
    ), step + 1
    FROM ahead_0
    WHERE k IS NOT NULL
), behind_0(k, step) AS (
    SELECT CASE WHEN :floor_0::BIGINT < 9223372036854775807 THEN (
        SELECT next.group_key
        FROM jobs AS next
        WHERE next.queue = :in_queue::VARCHAR
          AND next.priority = :priority_0::INTEGER
          AND next.group_key IS NOT NULL
          AND next.group_key ~ > ~ ''
        ORDER BY next.group_key USING ~ < ~
        LIMIT 1
    ) END, 4611686018427387903
    UNION ALL
    SELECT (
        SELECT next.group_key
        FROM jobs AS next
        WHERE next.queue = :in_queue::VARCHAR
          AND next.priority = :priority_0::INTEGER
          AND next.group_key IS NOT NULL
          AND next.group_key ~ > ~ behind_0.k
        ORDER BY next.group_key USING ~ < ~
        LIMIT 1
    ), step + 1
    FROM behind_0
    WHERE k ~ < ~ :cursor_0::VARCHAR
), candidate AS (
    SELECT id
    FROM (
        SELECT first.id
        FROM (
            SELECT k, step
            FROM ahead_0
            WHERE k IS NOT NULL
            UNION ALL
            SELECT k, step
            FROM behind_0
            WHERE (k ~ < ~ :cursor_0::VARCHAR OR (k = :cursor_0::VARCHAR AND :start_credit_0::INTEGER <= 0))
        ) AS visit CROSS
        JOIN LATERAL(
            SELECT head.id
            FROM jobs AS head
            WHERE head.queue = :in_queue::VARCHAR
              AND head.priority = :priority_0::INTEGER
              AND head.group_key IS NOT NULL
              AND head.group_key = visit.k
              AND head.available_at >= :floor_0::BIGINT
              AND head.available_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
            ORDER BY head.available_at, head.id
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        ) AS first
    ) AS drawn
    LIMIT :limit::INTEGER
)
UPDATE jobs AS jobs
SET due_at = jobs.available_at,
    available_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :lease::BIGINT,
    version = CASE WHEN jobs.version < 9223372036854775807 THEN jobs.version + 1 ELSE jobs.version END,
    attempts = CASE WHEN jobs.attempts < 2147483647 THEN jobs.attempts + 1 ELSE 2147483647 END,
    unknown_since = CASE WHEN jobs.claim_token IS NULL THEN jobs.unknown_since ELSE NULL END,
    claim_token = :token::VARCHAR, worker = :by_worker::VARCHAR, progress = NULL, progress_note = NULL, padding = NULL
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
RETURNING jobs.id, jobs.kind, jobs.payload, jobs.headers, jobs.priority, jobs.available_at, jobs.due_at, jobs.version,
    jobs.attempts, jobs.max_attempts, jobs.unique_key, jobs.created_at, jobs.last_error, jobs.group_key,
    jobs.callback_id;
