-- stream_claim_insert_held: the next batch of a stream, no job with a key, a group or a callback in the queue
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.allocate > spark.streams.store.claim.claim_allowed >
--   spark.streams.store.claim._claim > spark.dialects.base.SparkDialect.move_to_held
INSERT INTO jobs_held(stream, batch, id, kind, payload, headers, priority, available_at, max_attempts, unique_key,
    created_at, last_error, group_key, callback_id, version, attempts)
SELECT :param_1 AS anon_1, :param_2 AS anon_2, jobs.id, jobs.kind, jobs.payload, jobs.headers, jobs.priority,
    jobs.available_at, jobs.max_attempts, jobs.unique_key, jobs.created_at, jobs.last_error, jobs.group_key,
    jobs.callback_id,
    CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END AS anon_3,
    CASE WHEN (jobs.attempts < :attempts_1) THEN jobs.attempts + :attempts_2 ELSE :param_3 END AS anon_4
FROM jobs FORCE INDEX (jobs_claim)
WHERE jobs.queue = :queue_1
  AND jobs.available_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
  AND jobs.delete_mark = :delete_mark_1
  AND jobs.version < :version_3
  AND NOT (jobs.unique_key IS NOT NULL OR jobs.group_key IS NOT NULL OR jobs.callback_id IS NOT NULL)
ORDER BY jobs.priority, jobs.available_at, jobs.id
LIMIT :param_4
FOR UPDATE;
