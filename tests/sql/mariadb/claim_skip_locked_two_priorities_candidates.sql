-- claim_skip_locked_two_priorities_candidates: skip_locked or adaptive, with two priorities in the queue
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.lease.claim > dialects.seam.ClaimSeam.take
-- Always: delete_mark_1 = 0, delete_mark_2 = 0, param_1 = 1, param_2 = 1, param_3 = 1
SELECT candidate.id, candidate.kind, candidate.payload, candidate.headers, candidate.priority, candidate.available_at,
    candidate.due_at, candidate.version, candidate.attempts, candidate.max_attempts, candidate.unique_key,
    candidate.created_at, candidate.last_error, candidate.group_key, candidate.callback_id, candidate.head,
    (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS looked_at
FROM (
    SELECT `range` . id AS id, `range` . version AS version, `range` . priority AS priority,
        `range` . available_at AS available_at, `range` . kind AS kind, `range` . payload AS payload,
        `range` . headers AS headers, `range` . due_at AS due_at, `range` . attempts AS attempts,
        `range` . max_attempts AS max_attempts, `range` . unique_key AS unique_key,
        `range` . created_at AS created_at, `range` . last_error AS last_error, `range` . group_key AS group_key,
        `range` . callback_id AS callback_id, `range` . head AS head
    FROM (
        SELECT range_0.id AS id, range_0.version AS version, range_0.priority AS priority,
            range_0.available_at AS available_at, range_0.kind AS kind, range_0.payload AS payload,
            range_0.headers AS headers, range_0.due_at AS due_at, range_0.attempts AS attempts,
            range_0.max_attempts AS max_attempts, range_0.unique_key AS unique_key, range_0.created_at AS created_at,
            range_0.last_error AS last_error, range_0.group_key AS group_key, range_0.callback_id AS callback_id,
            range_0.head AS head
        FROM (
            SELECT jobs.id AS id, jobs.version AS version, jobs.priority AS priority,
                jobs.available_at AS available_at, jobs.kind AS kind, jobs.payload AS payload,
                jobs.headers AS headers, jobs.due_at AS due_at, jobs.attempts AS attempts,
                jobs.max_attempts AS max_attempts, jobs.unique_key AS unique_key, jobs.created_at AS created_at,
                jobs.last_error AS last_error, jobs.group_key AS group_key, jobs.callback_id AS callback_id,
                jobs.available_at AS head
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
        UNION ALL
        SELECT range_1.id AS id, range_1.version AS version, range_1.priority AS priority,
            range_1.available_at AS available_at, range_1.kind AS kind, range_1.payload AS payload,
            range_1.headers AS headers, range_1.due_at AS due_at, range_1.attempts AS attempts,
            range_1.max_attempts AS max_attempts, range_1.unique_key AS unique_key, range_1.created_at AS created_at,
            range_1.last_error AS last_error, range_1.group_key AS group_key, range_1.callback_id AS callback_id,
            range_1.head AS head
        FROM (
            SELECT jobs.id AS id, jobs.version AS version, jobs.priority AS priority,
                jobs.available_at AS available_at, jobs.kind AS kind, jobs.payload AS payload,
                jobs.headers AS headers, jobs.due_at AS due_at, jobs.attempts AS attempts,
                jobs.max_attempts AS max_attempts, jobs.unique_key AS unique_key, jobs.created_at AS created_at,
                jobs.last_error AS last_error, jobs.group_key AS group_key, jobs.callback_id AS callback_id,
                jobs.available_at AS head
            FROM jobs
            WHERE jobs.queue = :in_queue
              AND jobs.available_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
              AND jobs.delete_mark = :delete_mark_2
              AND jobs.priority = :priority_1
              AND jobs.available_at >= :floor_1
            ORDER BY jobs.available_at, jobs.id
            LIMIT :read
            FOR UPDATE SKIP LOCKED
        ) AS range_1
        LIMIT :read
    ) AS `range`
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
            LIMIT :param_1
        ) AS gap_0
        UNION ALL
        SELECT gap_1.priority AS priority
        FROM (
            SELECT jobs.priority AS priority
            FROM jobs
            WHERE jobs.queue = :in_queue
              AND jobs.priority > :priority_0
              AND jobs.priority < :priority_1
            ORDER BY jobs.priority DESC
            LIMIT :param_2
        ) AS gap_1
        UNION ALL
        SELECT gap_2.priority AS priority
        FROM (
            SELECT jobs.priority AS priority
            FROM jobs
            WHERE jobs.queue = :in_queue
              AND jobs.priority > :priority_1
            ORDER BY jobs.priority
            LIMIT :param_3
        ) AS gap_2
    ) AS gaps
) AS unseen;
