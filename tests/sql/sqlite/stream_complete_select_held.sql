-- stream_complete_select_held: a batch is written elsewhere
-- Also: stream_complete_keyed_select_held
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.streams.completion.complete > store.streams.completion.complete_up_to >
--   store.streams.completion._bury_marked
SELECT jobs_held.id AS id, jobs_streams.queue AS queue, jobs_held.kind AS kind,
    jobs_held.attempts + CASE WHEN (jobs_batches.deliveries > :deliveries_1) THEN jobs_batches.deliveries - :deliveries_2 ELSE :param_1 END AS attempts,
    jobs_held.max_attempts AS max_attempts, jobs_held.dead_reason AS last_error
FROM jobs_held
JOIN jobs_streams ON jobs_streams.id = jobs_held.stream
JOIN jobs_batches ON jobs_batches.stream = jobs_held.stream
  AND jobs_batches.batch = jobs_held.batch
WHERE jobs_held.stream = :stream_1
  AND jobs_held.batch = :batch_1
  AND jobs_held.dead_reason IS NOT NULL
ORDER BY jobs_held.id;
