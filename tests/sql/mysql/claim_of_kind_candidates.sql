-- claim_of_kind_candidates: jobs of one kind only
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.claim > dialects.base.Dialect.execute_claim
SELECT candidate.id, candidate.kind, candidate.payload, candidate.headers, candidate.priority, candidate.available_at,
    candidate.due_at, candidate.version, candidate.attempts, candidate.max_attempts, candidate.unique_key,
    candidate.created_at, candidate.last_error, candidate.group_key, candidate.callback_id, candidate.head,
    (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS looked_at
FROM (
    SELECT drawn.*, jobs.kind, jobs.payload, jobs.headers, jobs.due_at, jobs.attempts, jobs.max_attempts,
        jobs.unique_key, jobs.created_at, jobs.last_error, jobs.group_key, jobs.callback_id
    FROM (
        SELECT *
        FROM (
            SELECT jobs.id, jobs.version, jobs.priority, jobs.available_at, jobs.available_at AS head
            FROM jobs AS jobs
            WHERE jobs.queue = :in_queue
              AND jobs.available_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
              AND jobs.delete_mark = 0
              AND jobs.kind = :of_kind
              AND jobs.priority = :priority_0
              AND jobs.available_at >= :floor_0
            ORDER BY jobs.available_at, jobs.id
            LIMIT :read
        ) AS due_0
    ) AS drawn
    JOIN jobs AS jobs FORCE INDEX (PRIMARY) ON jobs.id = drawn.id
) AS candidate
UNION ALL
SELECT NULL, NULL, NULL, NULL, unseen.priority, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM (
    SELECT gap_0.priority
    FROM (
        SELECT jobs.priority
        FROM jobs AS jobs
        WHERE jobs.queue = :in_queue
          AND jobs.priority < :priority_0
        ORDER BY jobs.priority DESC
        LIMIT 1
    ) AS gap_0
    UNION ALL
    SELECT gap_1.priority
    FROM (
        SELECT jobs.priority
        FROM jobs AS jobs
        WHERE jobs.queue = :in_queue
          AND jobs.priority > :priority_0
        ORDER BY jobs.priority
        LIMIT 1
    ) AS gap_1
) AS unseen;
