-- stream_mark_dead_select_streams: a task gives up a job of its partition
-- Also: stream_mark_dead_many_select_streams
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.completion.mark_dead
SELECT jobs_streams.id
FROM jobs_streams
WHERE jobs_streams.id = :id_1;
