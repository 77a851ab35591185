-- enqueue_many_grouped_select_jobs: Queue.enqueue_many with groups, delayed: the due times of jobs that wait are kept
-- Also: admit_many_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   groups.store.dependents.Entry.block > groups.store.dependents.Entry.waiting > groups.store.groups.first_members >
--   groups.dialects.base.GroupDialect.first_in_groups
-- Always: param_1 = 0, param_2 = 0, param_3 = 1, param_4 = 0, param_5 = 2, param_6 = 0, param_7 = 3, param_8 = 0,
--   param_9 = 4, param_10 = 0, param_11 = 5, param_12 = 0, param_13 = 6, param_14 = 0, param_15 = 7, param_16 = 0
SELECT group_0.place, group_0.id, group_0.version, group_0.available_at
FROM (
    SELECT :param_1 AS place, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :of_queue
      AND jobs.group_key = :key_0
    ORDER BY jobs.id
    LIMIT :most
    OFFSET :param_2
) AS group_0
UNION ALL
SELECT group_1.place, group_1.id, group_1.version, group_1.available_at
FROM (
    SELECT :param_3 AS place, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :of_queue
      AND jobs.group_key = :key_1
    ORDER BY jobs.id
    LIMIT :most
    OFFSET :param_4
) AS group_1
UNION ALL
SELECT group_2.place, group_2.id, group_2.version, group_2.available_at
FROM (
    SELECT :param_5 AS place, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :of_queue
      AND jobs.group_key = :key_2
    ORDER BY jobs.id
    LIMIT :most
    OFFSET :param_6
) AS group_2
UNION ALL
SELECT group_3.place, group_3.id, group_3.version, group_3.available_at
FROM (
    SELECT :param_7 AS place, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :of_queue
      AND jobs.group_key = :key_3
    ORDER BY jobs.id
    LIMIT :most
    OFFSET :param_8
) AS group_3
UNION ALL
SELECT group_4.place, group_4.id, group_4.version, group_4.available_at
FROM (
    SELECT :param_9 AS place, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :of_queue
      AND jobs.group_key = :key_4
    ORDER BY jobs.id
    LIMIT :most
    OFFSET :param_10
) AS group_4
UNION ALL
SELECT group_5.place, group_5.id, group_5.version, group_5.available_at
FROM (
    SELECT :param_11 AS place, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :of_queue
      AND jobs.group_key = :key_5
    ORDER BY jobs.id
    LIMIT :most
    OFFSET :param_12
) AS group_5
UNION ALL
SELECT group_6.place, group_6.id, group_6.version, group_6.available_at
FROM (
    SELECT :param_13 AS place, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :of_queue
      AND jobs.group_key = :key_6
    ORDER BY jobs.id
    LIMIT :most
    OFFSET :param_14
) AS group_6
UNION ALL
SELECT group_7.place, group_7.id, group_7.version, group_7.available_at
FROM (
    SELECT :param_15 AS place, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :of_queue
      AND jobs.group_key = :key_7
    ORDER BY jobs.id
    LIMIT :most
    OFFSET :param_16
) AS group_7;
