-- stream_complete_delete_held: a batch is written elsewhere
-- Also: stream_complete_keyed_delete_held
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.completion.complete > spark.streams.store.completion.complete_up_to
DELETE FROM jobs_held
WHERE jobs_held.stream = :stream_1
  AND jobs_held.batch = :batch_1;
