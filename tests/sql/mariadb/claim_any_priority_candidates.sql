-- claim_any_priority_candidates: optimistic or adaptive, with more priorities in the queue than a process keeps marks
--   of
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.claim > dialects.seam.ClaimSeam.take
-- Always: delete_mark_1 = 0
SELECT candidate.id, candidate.kind, candidate.payload, candidate.headers, candidate.priority, candidate.available_at,
    candidate.due_at, candidate.version, candidate.attempts, candidate.max_attempts, candidate.unique_key,
    candidate.created_at, candidate.last_error, candidate.group_key, candidate.callback_id, candidate.head,
    (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS looked_at
FROM (
    SELECT drawn.id AS id, drawn.version AS version, drawn.priority AS priority, drawn.available_at AS available_at,
        drawn.head AS head, jobs.kind AS kind, jobs.payload AS payload, jobs.headers AS headers,
        jobs.due_at AS due_at, jobs.attempts AS attempts, jobs.max_attempts AS max_attempts,
        jobs.unique_key AS unique_key, jobs.created_at AS created_at, jobs.last_error AS last_error,
        jobs.group_key AS group_key, jobs.callback_id AS callback_id
    FROM (
        SELECT range_all.id AS id, range_all.version AS version, range_all.priority AS priority,
            range_all.available_at AS available_at, range_all.head AS head
        FROM (
            SELECT jobs.id AS id, jobs.version AS version, jobs.priority AS priority,
                jobs.available_at AS available_at, jobs.available_at AS head
            FROM jobs
            WHERE jobs.queue = :in_queue
              AND jobs.available_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
              AND jobs.delete_mark = :delete_mark_1
            ORDER BY jobs.priority, jobs.available_at, jobs.id
            LIMIT :read
        ) AS range_all
    ) AS drawn
    INNER JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = drawn.id
) AS candidate;
