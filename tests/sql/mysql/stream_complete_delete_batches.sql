-- stream_complete_delete_batches: a batch is written elsewhere
-- Also: stream_complete_keyed_delete_batches
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.completion.complete > spark.streams.store.completion.complete_up_to
DELETE FROM jobs_batches
WHERE jobs_batches.stream = :stream_1
  AND jobs_batches.batch <= :batch_1;
