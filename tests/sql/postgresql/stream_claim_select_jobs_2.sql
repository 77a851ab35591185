-- stream_claim_select_jobs_2: the next batch of a stream, no job with a key, a group or a callback in the queue
-- Also: stream_claim_shared_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.streams.reading.allocate > store.streams.claim.claim_allowed > store.streams.claim._claim
SELECT :param_1 AS anon_1
FROM jobs
WHERE jobs.queue = :queue_1
  AND jobs.group_key IS NOT NULL
LIMIT :param_2;
