-- handle_known_queue: the count of lost leases in a queue whose name may be mistaken: whether it has numbers
-- Transaction: none has begun, the statement commits by itself
-- Sent by: monitoring.store.metrics.has_numbers
SELECT jobs_metrics.at
FROM jobs_metrics
WHERE jobs_metrics.queue = :queue_1
LIMIT :param_1;
