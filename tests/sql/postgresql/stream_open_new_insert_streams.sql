-- stream_open_new_insert_streams: a reader makes the stream
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.open_stream
INSERT INTO jobs_streams(name, queue, epoch, acked_claim, retention)
VALUES (:name, :queue, :epoch, :acked_claim, :retention)
RETURNING jobs_streams.id;
