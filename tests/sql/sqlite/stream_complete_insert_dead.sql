-- stream_complete_insert_dead: a batch is written elsewhere
-- Also: stream_complete_keyed_insert_dead
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.completion.complete > spark.streams.store.completion.complete_up_to >
--   spark.streams.store.completion._bury_marked
INSERT INTO jobs_dead(id, kind, payload, headers, priority, version, attempts, max_attempts, unique_key, created_at,
    group_key, callback_id, queue, worker, died_at, last_error)
SELECT jobs_held.id, jobs_held.kind, jobs_held.payload, jobs_held.headers, jobs_held.priority, jobs_held.version,
    jobs_held.attempts + CASE WHEN (jobs_batches.deliveries > :deliveries_1) THEN jobs_batches.deliveries - :deliveries_2 ELSE :param_1 END AS anon_1,
    jobs_held.max_attempts, jobs_held.unique_key, jobs_held.created_at, jobs_held.group_key, jobs_held.callback_id,
    jobs_streams.queue, jobs_streams.holder,
    (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) AS now_us_1, jobs_held.dead_reason
FROM jobs_held
JOIN jobs_streams ON jobs_streams.id = jobs_held.stream
JOIN jobs_batches ON jobs_batches.stream = jobs_held.stream
  AND jobs_batches.batch = jobs_held.batch
WHERE jobs_held.stream = :stream_1
  AND jobs_held.batch = :batch_1
  AND jobs_held.dead_reason IS NOT NULL;
