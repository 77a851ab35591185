-- stream_keep_alive: a reader is there, though nothing is due
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.keep_alive
UPDATE jobs_streams
SET seen_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
WHERE jobs_streams.id = :id_1
  AND jobs_streams.epoch = :epoch_1;
