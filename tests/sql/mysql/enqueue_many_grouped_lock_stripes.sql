-- enqueue_many_grouped_lock_stripes: Queue.enqueue_many with groups, delayed: the due times of jobs that wait are
--   kept
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.groups.lock
SELECT jobs_stripes.id
FROM jobs_stripes FORCE INDEX (PRIMARY)
WHERE jobs_stripes.id IN (:numbers)
ORDER BY jobs_stripes.id
FOR UPDATE;
