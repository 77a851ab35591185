-- stream_partition_select_batches: the partitions of a batch are handed out
-- Also: stream_complete_select_batches, stream_complete_keyed_select_batches
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.partition > spark.streams.store.position.check >
--   spark.streams.store.position.batches_between
SELECT jobs_batches.stream, jobs_batches.batch, jobs_batches.claim, jobs_batches.size, jobs_batches.keyed,
    jobs_batches.parts, jobs_batches.oldest_at, jobs_batches.claimed_at, jobs_batches.deliveries,
    jobs_batches.delivered_epoch
FROM jobs_batches
WHERE jobs_batches.stream = :stream_1
  AND jobs_batches.batch BETWEEN :batch_1 AND :batch_2
ORDER BY jobs_batches.batch;
