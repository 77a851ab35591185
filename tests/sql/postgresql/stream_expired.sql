-- stream_expired: the maintenance looks for streams without a reader
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.releases.expired
SELECT jobs_streams.name
FROM jobs_streams
WHERE jobs_streams.allocated > jobs_streams.acked
  AND jobs_streams.seen_at + jobs_streams.retention < CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
ORDER BY jobs_streams.name;
