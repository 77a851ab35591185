-- enqueue_grouped_select_jobs: Queue.enqueue with a group
-- Also: enqueue_many_blocked_select_jobs, complete_grouped_select_jobs, admit_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   groups.store.dependents.Entry.block > groups.store.dependents.Entry.waiting > groups.store.groups.first_members >
--   groups.dialects.mysql.MySQLForGroups.first_in_groups > groups.dialects.base.GroupDialect.first_in_groups
-- Always: param_1 = 0
SELECT group_0.place, group_0.id, group_0.version, group_0.available_at
FROM (
    SELECT :param_1 AS place, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :of_queue
      AND jobs.group_key = :key_0
    ORDER BY jobs.id
    LIMIT :most
) AS group_0;
