-- stream_complete_update_streams: a batch is written elsewhere
-- Also: stream_complete_keyed_update_streams
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.completion.complete > spark.streams.store.completion.complete_up_to
UPDATE jobs_streams
SET acked = :acked, acked_claim = :acked_claim,
    seen_at = (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
WHERE jobs_streams.id = :id_1;
