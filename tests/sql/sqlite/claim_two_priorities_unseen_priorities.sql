-- claim_two_priorities_unseen_priorities: optimistic or adaptive, with two priorities in the queue
-- Also: claim_skip_locked_two_priorities_unseen_priorities
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.claim > dialects.sqlite.SQLite.take
-- Always: param_1 = 1, param_2 = 0, param_3 = 1, param_4 = 0, param_5 = 1, param_6 = 0
SELECT gaps.priority
FROM (
    SELECT gap_0.priority AS priority
    FROM (
        SELECT jobs.priority AS priority
        FROM jobs
        WHERE jobs.queue = :in_queue
          AND jobs.priority < :priority_0
        ORDER BY jobs.priority DESC
        LIMIT :param_1
        OFFSET :param_2
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
        LIMIT :param_3
        OFFSET :param_4
    ) AS gap_1
    UNION ALL
    SELECT gap_2.priority AS priority
    FROM (
        SELECT jobs.priority AS priority
        FROM jobs
        WHERE jobs.queue = :in_queue
          AND jobs.priority > :priority_1
        ORDER BY jobs.priority
        LIMIT :param_5
        OFFSET :param_6
    ) AS gap_2
) AS gaps;
