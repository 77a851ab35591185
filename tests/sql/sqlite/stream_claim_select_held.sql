-- stream_claim_select_held: the next batch of a stream, no job with a key, a group or a callback in the queue
-- Also: stream_claim_keyed_select_held, stream_claim_keyed_alone_select_held, stream_claim_shared_select_held,
--   stream_claim_keyed_many_select_held
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.allocate > spark.streams.store.partitions.batch_ranges
SELECT min(jobs_held.id) AS min_1, max(jobs_held.id) AS max_1
FROM jobs_held
WHERE jobs_held.stream = :stream_1
  AND jobs_held.batch = :batch_1;
