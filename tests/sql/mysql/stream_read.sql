-- stream_read: a task reads its partition
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.read_part > spark.ranges.store.rows_of
SELECT jobs_held.id, jobs_held.kind, jobs_held.payload, jobs_held.headers, jobs_held.priority, jobs_held.attempts,
    jobs_held.created_at, jobs_held.version
FROM jobs_held
WHERE jobs_held.stream = :stream_1
  AND jobs_held.batch = :batch_1
  AND jobs_held.id > :id_1
  AND jobs_held.id <= :id_2
ORDER BY jobs_held.id
LIMIT :param_1;
