-- stream_mark_dead_update_held: a task gives up a job of its partition
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.completion.mark_dead
UPDATE jobs_held
SET dead_reason = :dead_reason
WHERE jobs_held.stream = :stream_1
  AND jobs_held.batch IN (
    SELECT jobs_batches.batch
    FROM jobs_batches
    WHERE jobs_batches.stream = :stream_2
)
  AND id = :of_id
  AND version = :of_version;
