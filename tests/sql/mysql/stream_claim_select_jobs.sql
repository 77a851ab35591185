-- stream_claim_select_jobs: the next batch of a stream, no job with a key, a group or a callback in the queue
-- Also: stream_claim_keyed_select_jobs, stream_claim_keyed_alone_select_jobs, stream_claim_shared_select_jobs,
--   stream_claim_keyed_many_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.allocate > spark.streams.store.claim.claim_allowed >
--   spark.streams.store.claim._claim
SELECT :param_1 AS anon_1
FROM jobs
WHERE jobs.unique_key IS NOT NULL
LIMIT :param_2;
