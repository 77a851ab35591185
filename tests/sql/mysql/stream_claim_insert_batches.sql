-- stream_claim_insert_batches: the next batch of a stream, no job with a key, a group or a callback in the queue
-- Also: stream_claim_keyed_insert_batches, stream_claim_keyed_alone_insert_batches,
--   stream_claim_shared_insert_batches, stream_claim_keyed_many_insert_batches
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.allocate
INSERT INTO jobs_batches(stream, batch, claim, size, keyed, parts, oldest_at, claimed_at, deliveries)
VALUES (:stream, :batch, :claim, :size, :keyed, :parts, :oldest_at, (TIMESTAMPDIFF(MICROSECOND, '1970-01-01',
    UTC_TIMESTAMP(6))), :deliveries);
