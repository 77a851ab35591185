-- stream_keep_alive: a reader is there, though nothing is due
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.keep_alive
UPDATE jobs_streams
SET seen_at = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
WHERE jobs_streams.id = :id_1
  AND jobs_streams.epoch = :epoch_1;
