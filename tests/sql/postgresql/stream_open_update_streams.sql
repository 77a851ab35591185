-- stream_open_update_streams: a reader opens the stream
-- Also: stream_open_new_update_streams
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.open_stream
UPDATE jobs_streams
SET epoch = :epoch, holder = :holder, retention = :retention,
    seen_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
WHERE jobs_streams.id = :id_1;
