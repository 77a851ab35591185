-- claim_optimistic_unseen_priorities: optimistic or adaptive, at the head
-- Also: claim_optimistic_slice_unseen_priorities, claim_skip_locked_unseen_priorities,
--   claim_pessimistic_unseen_priorities, claim_of_kind_unseen_priorities, claim_if_idle_unseen_priorities,
--   claim_skip_locked_if_idle_unseen_priorities
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.claim > dialects.sqlite.SQLite.execute_claim
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
) AS gap_1;
