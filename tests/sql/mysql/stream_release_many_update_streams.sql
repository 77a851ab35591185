-- stream_release_many_update_streams: the held jobs go back to the queue, several of them with a key
-- Also: stream_release_update_streams
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.releases.release > spark.streams.store.releases.release_row
UPDATE jobs_streams
SET epoch = :epoch, acked = :acked, acked_claim = :acked_claim, holder = :holder
WHERE jobs_streams.id = :id_1;
