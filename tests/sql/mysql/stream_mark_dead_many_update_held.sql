-- stream_mark_dead_many_update_held: a task gives up jobs of its partition, each with its own reason
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.completion.mark_dead
UPDATE jobs_held
SET dead_reason = CASE jobs_held.id WHEN :param_1 THEN :param_2 WHEN :param_3 THEN :param_4 END
WHERE jobs_held.stream = :stream_1
  AND jobs_held.batch IN (
    SELECT jobs_batches.batch
    FROM jobs_batches
    WHERE jobs_batches.stream = :stream_2
)
  AND id IN (:of_ids)
  AND (id, version) IN (:of_pairs);
