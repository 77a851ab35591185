-- stream_claim_keyed_select_held: the next batch of a stream, with jobs that have a key, a group or a callback;
--   another stream reads the queue too
-- Also: stream_claim_keyed_alone_select_held, stream_claim_keyed_many_select_held
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.allocate > spark.streams.store.claim.claim_allowed >
--   spark.streams.store.claim._claim > spark.dialects.base.SparkDialect.move_to_held >
--   spark.dialects.base.SparkDialect._reserve
SELECT jobs_held.id, jobs_held.version - :version_1 AS anon_1
FROM jobs_held
WHERE jobs_held.stream = :param_1
  AND jobs_held.batch = :param_2
  AND (jobs_held.unique_key IS NOT NULL OR jobs_held.group_key IS NOT NULL OR jobs_held.callback_id IS NOT NULL);
