-- enqueue_grouped_update_stripes: Queue.enqueue with a group
-- Also: enqueue_many_blocked_update_stripes, complete_grouped_update_stripes, reschedule_blocked_update_stripes
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > groups.store.dependents.enter >
--   groups.store.groups.lock
-- Prepared once for each connection.
UPDATE jobs_stripes
SET version = (jobs_stripes.version + 1)
WHERE jobs_stripes.id = ANY(:numbers::INTEGER[]);
