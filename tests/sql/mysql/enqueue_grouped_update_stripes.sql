-- enqueue_grouped_update_stripes: Queue.enqueue with a group
-- Also: enqueue_many_grouped_update_stripes, enqueue_many_blocked_update_stripes, complete_grouped_update_stripes,
--   reschedule_blocked_update_stripes
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > groups.store.dependents.enter >
--   groups.store.groups.lock
-- Always: version_1 = 1
UPDATE jobs_stripes FORCE INDEX (PRIMARY)
SET version = (jobs_stripes.version + :version_1)
WHERE jobs_stripes.id IN (:numbers);
