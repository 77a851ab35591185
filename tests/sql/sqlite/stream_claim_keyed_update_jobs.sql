-- stream_claim_keyed_update_jobs: the next batch of a stream, with jobs that have a key, a group or a callback;
--   another stream reads the queue too
-- Also: stream_claim_keyed_alone_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.allocate > spark.streams.store.claim.claim_allowed >
--   spark.streams.store.claim._claim > spark.dialects.base.SparkDialect.move_to_held >
--   spark.dialects.base.SparkDialect._reserve
UPDATE jobs
SET due_at = jobs.available_at, available_at = :available_at,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts < :attempts_1) THEN jobs.attempts + :attempts_2 ELSE :param_1 END,
    claim_token = :claim_token, worker = :worker
WHERE id = :of_id
  AND version = :of_version;
