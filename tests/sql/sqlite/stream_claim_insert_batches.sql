-- stream_claim_insert_batches: the next batch of a stream, no job with a key, a group or a callback in the queue
-- Also: stream_claim_keyed_insert_batches, stream_claim_keyed_alone_insert_batches,
--   stream_claim_shared_insert_batches, stream_claim_keyed_many_insert_batches
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.allocate
INSERT INTO jobs_batches(stream, batch, claim, size, keyed, parts, oldest_at, claimed_at, deliveries)
VALUES (:stream, :batch, :claim, :size, :keyed, :parts, :oldest_at,
    (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000), :deliveries);
