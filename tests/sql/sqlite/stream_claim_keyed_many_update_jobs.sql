-- stream_claim_keyed_many_update_jobs: the same for several jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.allocate > spark.streams.store.claim.claim_allowed >
--   spark.streams.store.claim._claim > spark.dialects.base.SparkDialect.move_to_held >
--   spark.dialects.base.SparkDialect._reserve
UPDATE jobs
SET due_at = jobs.available_at, available_at = :available_at,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts < :attempts_1) THEN jobs.attempts + :attempts_2 ELSE :param_1 END,
    claim_token = :claim_token, worker = :worker
WHERE id IN (:of_ids)
  AND (id, version) IN (VALUES (:of_pairs));
