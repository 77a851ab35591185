-- handle_known_queue: Queue.lease_from_token, Queue.leases_from_tokens: whether a queue without these jobs has
--   numbers
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.metrics.has_numbers
SELECT jobs_metrics.at
FROM jobs_metrics
WHERE jobs_metrics.queue = :queue_1
LIMIT :param_1
OFFSET :param_2;
