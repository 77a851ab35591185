-- stream_partition_update_batches: the partitions of a batch are handed out
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.partition
UPDATE jobs_batches
SET deliveries = (jobs_batches.deliveries + :deliveries_1), delivered_epoch = :delivered_epoch
WHERE jobs_batches.stream = :stream_1
  AND jobs_batches.batch = :batch_1;
