-- stream_release_many_delete_batches: the held jobs go back to the queue, several of them with a key
-- Also: stream_release_delete_batches
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.releases.release > spark.streams.store.releases.release_row
DELETE FROM jobs_batches
WHERE jobs_batches.stream = :stream_1;
