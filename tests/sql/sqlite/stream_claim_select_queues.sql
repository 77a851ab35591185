-- stream_claim_select_queues: the next batch of a stream, no job with a key, a group or a callback in the queue
-- Also: stream_claim_keyed_select_queues, stream_claim_keyed_alone_select_queues, stream_claim_shared_select_queues,
--   stream_claim_keyed_many_select_queues
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.allocate > spark.streams.store.claim.claim_allowed > store.controls.read
SELECT jobs_queues.name, jobs_queues.paused, jobs_queues.concurrency, jobs_queues.rate, jobs_queues.per,
    jobs_queues.spent_until, jobs_queues.per_group, jobs_queues.fair
FROM jobs_queues
WHERE jobs_queues.name IN (:name_1);
