-- stream_open_update_streams: a reader opens the stream
-- Also: stream_open_new_update_streams
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.open_stream
UPDATE jobs_streams
SET epoch = :epoch, holder = :holder, retention = :retention,
    seen_at = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
WHERE jobs_streams.id = :id_1;
