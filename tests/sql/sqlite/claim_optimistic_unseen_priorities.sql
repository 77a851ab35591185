-- claim_optimistic_unseen_priorities: optimistic or adaptive, at the head
-- Also: claim_optimistic_slice_unseen_priorities, claim_optimistic_shuffle_unseen_priorities,
--   claim_skip_locked_unseen_priorities, claim_pessimistic_unseen_priorities, claim_of_kind_unseen_priorities,
--   claim_unless_due_unseen_priorities, claim_skip_locked_unless_due_unseen_priorities
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.claim > dialects.sqlite.SQLite.take
-- Always: param_1 = 1, param_2 = 0, param_3 = 1, param_4 = 0
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
        ORDER BY jobs.priority
        LIMIT :param_3
        OFFSET :param_4
    ) AS gap_1
) AS gaps;
