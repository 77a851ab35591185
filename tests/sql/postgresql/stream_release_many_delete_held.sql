-- stream_release_many_delete_held: the held jobs go back to the queue, several of them with a key
-- Also: stream_release_delete_held
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.releases.release > spark.streams.store.releases.release_row
DELETE FROM jobs_held
WHERE jobs_held.stream = :stream_1;
