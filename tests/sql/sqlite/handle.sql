-- handle: Queue.lease_from_token, Queue.leases_from_tokens
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.settle.leased
SELECT jobs.id, jobs.kind, jobs.payload, jobs.headers, jobs.priority, jobs.available_at, jobs.due_at, jobs.version,
    jobs.attempts, jobs.max_attempts, jobs.unique_key, jobs.created_at, jobs.last_error, jobs.group_key,
    jobs.callback_id, jobs.queue, jobs.claim_token, jobs.worker
FROM jobs
WHERE jobs.id IN (:id_1)
  AND jobs.claim_token IS NOT NULL;
