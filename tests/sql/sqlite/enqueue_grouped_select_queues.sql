-- enqueue_grouped_select_queues: Queue.enqueue with a group
-- Also: enqueue_many_grouped_select_queues, enqueue_many_blocked_select_queues, complete_grouped_select_queues,
--   reschedule_blocked_select_queues
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > groups.store.dependents.enter >
--   groups.store.groups.lock
SELECT jobs_queues.name, jobs_queues.per_group
FROM jobs_queues
WHERE jobs_queues.name IN (:names)
  AND jobs_queues.per_group IS NOT NULL;
