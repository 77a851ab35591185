-- stream_open_lock_streams: a reader opens the stream
-- Also: stream_open_new_lock_streams, stream_claim_lock_streams, stream_claim_keyed_lock_streams,
--   stream_claim_keyed_alone_lock_streams, stream_claim_shared_lock_streams, stream_claim_keyed_many_lock_streams,
--   stream_partition_lock_streams, stream_complete_lock_streams, stream_complete_keyed_lock_streams,
--   stream_release_many_lock_streams, stream_release_lock_streams
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.open_stream > spark.streams.store.position.locked
SELECT jobs_streams.id, jobs_streams.name, jobs_streams.queue, jobs_streams.epoch, jobs_streams.allocated,
    jobs_streams.acked, jobs_streams.acked_claim, jobs_streams.holder, jobs_streams.retention,
    jobs_streams.created_at, jobs_streams.seen_at
FROM jobs_streams
WHERE jobs_streams.name = :name_1
FOR UPDATE;
