-- claim_pessimistic_lost: pessimistic, when nothing was won: whether the wait was lost or the queue is empty
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.anything_due
-- Prepared once for each connection.
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.available_at, jobs.available_at AS head
    FROM jobs AS jobs
    WHERE jobs.queue = :in_queue::VARCHAR
      AND jobs.available_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
      AND jobs.delete_mark = 0
      AND jobs.priority = :priority_0::INTEGER
      AND jobs.available_at >= :floor_0::BIGINT
    ORDER BY jobs.available_at, jobs.id
    LIMIT :read::INTEGER
) AS due_0;
