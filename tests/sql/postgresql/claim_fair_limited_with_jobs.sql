-- claim_fair_limited_with_jobs: a fair queue with limits of groups
-- Also: claim_fair_limited_lone_with_jobs, claim_fair_limited_by_time_with_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.postgresql.PostgreSQLFair.candidates
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
), turn_0(id, k, place, nth, available_at, weight, extra) AS MATERIALIZED (
    SELECT first.id, visit.k, visit.step, CAST(1 AS BIGINT), first.available_at, 1,
        CASE WHEN visit.k = :cursor_0::VARCHAR
      AND visit.step = 1
      AND :start_credit_0::INTEGER > 0 THEN :start_credit_0::INTEGER - 1 ELSE 0 END
    FROM (
        SELECT k, step
        FROM ahead_0
        WHERE k IS NOT NULL
          AND NOT k IN (
            SELECT jsonb_array_elements_text(CAST(:refused::VARCHAR AS JSONB))
        )
        UNION ALL
        SELECT k, step
        FROM behind_0
        WHERE (k ~ < ~ :cursor_0::VARCHAR OR (k = :cursor_0::VARCHAR AND :start_credit_0::INTEGER <= 0))
          AND NOT k IN (
            SELECT jsonb_array_elements_text(CAST(:refused::VARCHAR AS JSONB))
        )
    ) AS visit CROSS
    JOIN LATERAL(
        SELECT head.id, head.available_at
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
    LIMIT :limit::INTEGER
), round_0 AS (
    SELECT (:limit::INTEGER + sum(weight) - 1) / sum(weight) AS each
    FROM turn_0
), more_0 AS (
    SELECT others.id, turn.place,
        1 + row_number() OVER (PARTITION BY turn.place ORDER BY others.available_at, others.id) AS nth
    FROM turn_0 AS turn CROSS
    JOIN LATERAL(
        SELECT further.id, further.available_at
        FROM jobs AS further
        WHERE further.queue = :in_queue::VARCHAR
          AND further.priority = :priority_0::INTEGER
          AND further.group_key IS NOT NULL
          AND further.group_key = turn.k
          AND further.available_at >= :floor_0::BIGINT
          AND further.available_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
          AND (further.available_at, further.id) > (turn.available_at, turn.id)
        ORDER BY further.available_at, further.id
        LIMIT greatest((
            SELECT each
            FROM round_0
        ) * turn.weight + turn.extra - 1, 0)
        FOR UPDATE SKIP LOCKED
    ) AS others
), drawn AS MATERIALIZED (
    SELECT id, 0 AS arm, place, nth
    FROM turn_0
    UNION ALL
    SELECT id, 0 AS arm, place, nth
    FROM more_0
), candidate AS (
    SELECT id, arm, place, nth
    FROM drawn
    ORDER BY arm, place, nth
    LIMIT :limit::INTEGER
)
SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
FROM candidate
JOIN jobs AS jobs ON jobs.id = candidate.id
WHERE (
    SELECT other.priority
    FROM jobs AS other
    WHERE other.queue = :in_queue::VARCHAR
      AND other.priority < :priority_0::INTEGER
    ORDER BY other.priority DESC
    LIMIT 1
) IS NULL
ORDER BY candidate.arm, candidate.place, candidate.nth;
