-- stream_claim_update_streams: the next batch of a stream, no job with a key, a group or a callback in the queue
-- Also: stream_claim_keyed_update_streams, stream_claim_keyed_alone_update_streams,
--   stream_claim_shared_update_streams, stream_claim_keyed_many_update_streams
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.allocate
UPDATE jobs_streams
SET allocated = :allocated, seen_at = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
WHERE jobs_streams.id = :id_1;
