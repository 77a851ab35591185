-- claim_skip_locked_unless_due_candidates: Queue.claim_unless with SKIP LOCKED
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.lease.claim > dialects.seam.ClaimSeam.take
-- Always: delete_mark_1 = 0, delete_mark_2 = 0, param_1 = 1, param_2 = 1, param_3 = 1
SELECT candidate.id, candidate.kind, candidate.payload, candidate.headers, candidate.priority, candidate.available_at,
    candidate.due_at, candidate.version, candidate.attempts, candidate.max_attempts, candidate.unique_key,
    candidate.created_at, candidate.last_error, candidate.group_key, candidate.callback_id, candidate.head,
    (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS looked_at
FROM (
    SELECT range_0.id AS id, range_0.version AS version, range_0.priority AS priority,
        range_0.available_at AS available_at, range_0.kind AS kind, range_0.payload AS payload,
        range_0.headers AS headers, range_0.due_at AS due_at, range_0.attempts AS attempts,
        range_0.max_attempts AS max_attempts, range_0.unique_key AS unique_key, range_0.created_at AS created_at,
        range_0.last_error AS last_error, range_0.group_key AS group_key, range_0.callback_id AS callback_id,
        range_0.head AS head
    FROM (
        SELECT jobs.id AS id, jobs.version AS version, jobs.priority AS priority, jobs.available_at AS available_at,
            jobs.kind AS kind, jobs.payload AS payload, jobs.headers AS headers, jobs.due_at AS due_at,
            jobs.attempts AS attempts, jobs.max_attempts AS max_attempts, jobs.unique_key AS unique_key,
            jobs.created_at AS created_at, jobs.last_error AS last_error, jobs.group_key AS group_key,
            jobs.callback_id AS callback_id, jobs.available_at AS head
        FROM jobs
        WHERE jobs.queue = :in_queue
          AND jobs.available_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
          AND jobs.delete_mark = :delete_mark_1
          AND jobs.priority = :priority_0
          AND jobs.available_at >= :floor_0
        ORDER BY jobs.available_at, jobs.id
        LIMIT :read
        FOR UPDATE SKIP LOCKED
    ) AS range_0
    WHERE (
        SELECT other.id
        FROM jobs AS other
        WHERE other.queue = :other_queue_0
          AND other.priority = :other_priority_0
          AND other.available_at >= :other_floor_0
          AND other.available_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
          AND other.delete_mark = :delete_mark_2
        ORDER BY other.available_at
        LIMIT :param_1
    ) IS NULL
) AS candidate
UNION ALL
SELECT NULL AS anon_1, NULL AS anon__1, NULL AS anon__2, NULL AS anon__3, unseen.priority, NULL AS anon__4,
    NULL AS anon__5, NULL AS anon__6, NULL AS anon__7, NULL AS anon__8, NULL AS anon__9, NULL AS anon__10,
    NULL AS anon__11, NULL AS anon__12, NULL AS anon__13, NULL AS anon__14, NULL AS anon__15
FROM (
    SELECT gaps.priority AS priority
    FROM (
        SELECT gap_0.priority AS priority
        FROM (
            SELECT jobs.priority AS priority
            FROM jobs
            WHERE jobs.queue = :in_queue
              AND jobs.priority < :priority_0
            ORDER BY jobs.priority DESC
            LIMIT :param_2
        ) AS gap_0
        UNION ALL
        SELECT gap_1.priority AS priority
        FROM (
            SELECT jobs.priority AS priority
            FROM jobs
            WHERE jobs.queue = :in_queue
              AND jobs.priority > :priority_0
            ORDER BY jobs.priority
            LIMIT :param_3
        ) AS gap_1
    ) AS gaps
) AS unseen;
