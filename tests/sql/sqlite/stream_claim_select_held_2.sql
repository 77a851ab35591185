-- stream_claim_select_held_2: the next batch of a stream, no job with a key, a group or a callback in the queue
-- Also: stream_claim_keyed_select_held, stream_claim_keyed_alone_select_held, stream_claim_shared_select_held,
--   stream_claim_keyed_many_select_held
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.reading.allocate > spark.streams.store.partitions.batch_ranges >
--   spark.streams.store.partitions._counted
SELECT anon_1.place, min(anon_1.id) AS low, max(anon_1.id) AS high, count(*) AS jobs, sum(anon_1.keyed) AS keyed,
    min(anon_1.created_at) AS oldest
FROM (
    SELECT jobs_held.id AS id,
        CAST(jobs_held.unique_key IS NOT NULL OR jobs_held.group_key IS NOT NULL OR jobs_held.callback_id IS NOT NULL AS INTEGER) AS keyed,
        jobs_held.created_at AS created_at, (jobs_held.id - :id_1) / :param_1 AS place
    FROM jobs_held
    WHERE jobs_held.stream = :stream_1
      AND jobs_held.batch = :batch_1
) AS anon_1
GROUP BY anon_1.place
ORDER BY anon_1.place;
