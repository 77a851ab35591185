-- stream_release_many_select_held: the held jobs go back to the queue, several of them with a key
-- Also: stream_release_select_held
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.releases.release > spark.streams.store.releases.release_row >
--   spark.streams.store.held.keyed_pairs
SELECT jobs_held.id, jobs_held.version
FROM jobs_held
WHERE jobs_held.stream = :stream_1
  AND (jobs_held.unique_key IS NOT NULL OR jobs_held.group_key IS NOT NULL OR jobs_held.callback_id IS NOT NULL)
ORDER BY jobs_held.id;
