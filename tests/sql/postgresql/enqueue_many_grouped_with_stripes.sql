-- enqueue_many_grouped_with_stripes: Queue.enqueue_many with groups, delayed: the due times of jobs that wait are
--   kept
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > groups.store.dependents.enter >
--   groups.store.groups.lock
-- Prepared once for each connection.
WITH held AS (
    SELECT jobs_stripes.id AS id
    FROM jobs_stripes
    WHERE jobs_stripes.id = ANY(:numbers::INTEGER[])
    ORDER BY jobs_stripes.id
    FOR UPDATE
)
UPDATE jobs_stripes
SET version = (jobs_stripes.version + 1)
FROM held
WHERE jobs_stripes.id = held.id;
