-- stream_complete_update_streams: a batch is written elsewhere
-- Also: stream_complete_keyed_update_streams
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.completion.complete > spark.streams.store.completion.complete_up_to
UPDATE jobs_streams
SET acked = :acked, acked_claim = :acked_claim,
    seen_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
WHERE jobs_streams.id = :id_1;
