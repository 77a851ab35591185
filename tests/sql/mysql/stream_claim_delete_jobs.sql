-- stream_claim_delete_jobs: the next batch of a stream, no job with a key, a group or a callback in the queue
-- Also: stream_claim_keyed_delete_jobs, stream_claim_keyed_alone_delete_jobs, stream_claim_shared_delete_jobs,
--   stream_claim_keyed_many_delete_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.allocate > spark.streams.store.claim.claim_allowed >
--   spark.streams.store.claim._claim > spark.dialects.base.SparkDialect.move_to_held >
--   spark.dialects.mysql.MySQLForSpark.delete_held
DELETE jobs
FROM jobs_held
STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = jobs_held.id
WHERE jobs_held.stream = :param_1
  AND jobs_held.batch = :param_2
  AND NOT (jobs_held.unique_key IS NOT NULL OR jobs_held.group_key IS NOT NULL OR jobs_held.callback_id IS NOT NULL);
