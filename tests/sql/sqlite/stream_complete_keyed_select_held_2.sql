-- stream_complete_keyed_select_held_2: a batch with jobs that have a key is written elsewhere
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.completion.complete > spark.streams.store.completion.complete_up_to >
--   spark.streams.store.completion._leave
SELECT jobs_held.id
FROM jobs_held
WHERE jobs_held.stream = :stream_1
  AND jobs_held.batch = :batch_1
  AND jobs_held.id IN (:id_1)
  AND jobs_held.dead_reason IS NOT NULL;
