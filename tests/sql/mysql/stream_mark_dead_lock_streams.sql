-- stream_mark_dead_lock_streams: a task gives up a job of its partition
-- Also: stream_mark_dead_many_lock_streams
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.completion.mark_dead
SELECT jobs_streams.id
FROM jobs_streams
WHERE jobs_streams.id = :id_1
FOR UPDATE;
