-- stream_complete_keyed_select_held: a batch with jobs that have a key is written elsewhere
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.completion.complete > spark.streams.store.completion.complete_up_to >
--   spark.streams.store.held.keyed_pairs
SELECT jobs_held.id, jobs_held.version
FROM jobs_held
WHERE jobs_held.stream = :stream_1
  AND jobs_held.batch = :batch_1
  AND (jobs_held.unique_key IS NOT NULL OR jobs_held.group_key IS NOT NULL OR jobs_held.callback_id IS NOT NULL)
ORDER BY jobs_held.id;
