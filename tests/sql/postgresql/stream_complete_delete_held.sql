-- stream_complete_delete_held: a batch is written elsewhere
-- Also: stream_complete_keyed_delete_held
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.streams.complete > store.streams._complete
DELETE FROM jobs_held
WHERE jobs_held.stream = :stream_1
  AND jobs_held.batch = :batch_1;
