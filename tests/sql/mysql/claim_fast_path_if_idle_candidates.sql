-- claim_fast_path_if_idle_candidates: Queue.claim_if_idle, one job, when the last claim won all it wanted
-- Also: claim_fast_path_if_idle_many_candidates
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.claim > dialects.base.Dialect.execute_claim
SELECT jobs.id, jobs.kind, jobs.payload, jobs.headers, jobs.priority, jobs.available_at, jobs.due_at, jobs.version,
    jobs.attempts, jobs.max_attempts, jobs.unique_key, jobs.created_at, jobs.last_error, jobs.group_key,
    jobs.callback_id, jobs.available_at AS head,
    (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS looked_at
FROM jobs AS jobs
WHERE jobs.queue = :in_queue
  AND jobs.available_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
  AND jobs.delete_mark = 0
  AND jobs.priority = :priority_0
  AND jobs.available_at >= :floor_0
  AND (
    SELECT other.id
    FROM jobs AS other
    WHERE other.queue = :other_queue_0
      AND other.priority = :other_priority_0
      AND other.available_at >= :other_floor_0
      AND other.available_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
      AND other.delete_mark = 0
    ORDER BY other.available_at
    LIMIT 1
) IS NULL
  AND (
    SELECT other.priority
    FROM jobs AS other
    WHERE other.queue = :in_queue
      AND other.priority < :priority_0
    ORDER BY other.priority DESC
    LIMIT 1
) IS NULL
ORDER BY jobs.available_at, jobs.id
LIMIT :limit;
