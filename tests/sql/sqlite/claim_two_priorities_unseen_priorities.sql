-- claim_two_priorities_unseen_priorities: optimistic or adaptive, with two priorities in the queue
-- Also: claim_skip_locked_two_priorities_unseen_priorities
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
      AND jobs.priority < :priority_1
    ORDER BY jobs.priority DESC
    LIMIT 1
) AS gap_1
UNION ALL
SELECT gap_2.priority
FROM (
    SELECT jobs.priority
    FROM jobs AS jobs
    WHERE jobs.queue = :in_queue
      AND jobs.priority > :priority_1
    ORDER BY jobs.priority
    LIMIT 1
) AS gap_2;
