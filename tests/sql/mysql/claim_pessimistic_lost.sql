-- claim_pessimistic_lost: pessimistic, when nothing was won: whether the wait was lost or the queue is empty
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.anything_due
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.available_at, jobs.available_at AS head
    FROM jobs AS jobs
    WHERE jobs.queue = :in_queue
      AND jobs.available_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
      AND jobs.delete_mark = 0
      AND jobs.priority = :priority_0
      AND jobs.available_at >= :floor_0
    ORDER BY jobs.available_at, jobs.id
    LIMIT :read
) AS due_0;
