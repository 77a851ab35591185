-- enqueue_many_grouped_select_jobs: Queue.enqueue_many with groups, delayed: the due times of jobs that wait are kept
-- Also: admit_many_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert > store.groups.block >
--   store.groups.waiting > store.groups._first
-- Always: param_1 = 0, param_2 = 1, param_3 = 2, param_4 = 3, param_5 = 4, param_6 = 5, param_7 = 6, param_8 = 7
SELECT group_0.number, group_0.id, group_0.version, group_0.available_at
FROM (
    SELECT :param_1 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_0
      AND jobs.group_key = :group_0
    ORDER BY jobs.id
    LIMIT :limit_0
) AS group_0
UNION ALL
SELECT group_1.number, group_1.id, group_1.version, group_1.available_at
FROM (
    SELECT :param_2 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_1
      AND jobs.group_key = :group_1
    ORDER BY jobs.id
    LIMIT :limit_1
) AS group_1
UNION ALL
SELECT group_2.number, group_2.id, group_2.version, group_2.available_at
FROM (
    SELECT :param_3 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_2
      AND jobs.group_key = :group_2
    ORDER BY jobs.id
    LIMIT :limit_2
) AS group_2
UNION ALL
SELECT group_3.number, group_3.id, group_3.version, group_3.available_at
FROM (
    SELECT :param_4 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_3
      AND jobs.group_key = :group_3
    ORDER BY jobs.id
    LIMIT :limit_3
) AS group_3
UNION ALL
SELECT group_4.number, group_4.id, group_4.version, group_4.available_at
FROM (
    SELECT :param_5 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_4
      AND jobs.group_key = :group_4
    ORDER BY jobs.id
    LIMIT :limit_4
) AS group_4
UNION ALL
SELECT group_5.number, group_5.id, group_5.version, group_5.available_at
FROM (
    SELECT :param_6 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_5
      AND jobs.group_key = :group_5
    ORDER BY jobs.id
    LIMIT :limit_5
) AS group_5
UNION ALL
SELECT group_6.number, group_6.id, group_6.version, group_6.available_at
FROM (
    SELECT :param_7 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_6
      AND jobs.group_key = :group_6
    ORDER BY jobs.id
    LIMIT :limit_6
) AS group_6
UNION ALL
SELECT group_7.number, group_7.id, group_7.version, group_7.available_at
FROM (
    SELECT :param_8 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_7
      AND jobs.group_key = :group_7
    ORDER BY jobs.id
    LIMIT :limit_7
) AS group_7;
