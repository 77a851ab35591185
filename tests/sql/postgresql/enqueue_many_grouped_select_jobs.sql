-- enqueue_many_grouped_select_jobs: Queue.enqueue_many with groups, delayed: the due times of jobs that wait are kept
-- Also: admit_many_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert > store.groups.block >
--   store.groups.waiting > store.groups._first
-- Prepared once for each connection.
SELECT group_0.number, group_0.id, group_0.version, group_0.available_at
FROM (
    SELECT 0 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_0::VARCHAR
      AND jobs.group_key = :group_0::VARCHAR
    ORDER BY jobs.id
    LIMIT :limit_0::INTEGER
) AS group_0
UNION ALL
SELECT group_1.number, group_1.id, group_1.version, group_1.available_at
FROM (
    SELECT 1 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_1::VARCHAR
      AND jobs.group_key = :group_1::VARCHAR
    ORDER BY jobs.id
    LIMIT :limit_1::INTEGER
) AS group_1
UNION ALL
SELECT group_2.number, group_2.id, group_2.version, group_2.available_at
FROM (
    SELECT 2 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_2::VARCHAR
      AND jobs.group_key = :group_2::VARCHAR
    ORDER BY jobs.id
    LIMIT :limit_2::INTEGER
) AS group_2
UNION ALL
SELECT group_3.number, group_3.id, group_3.version, group_3.available_at
FROM (
    SELECT 3 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_3::VARCHAR
      AND jobs.group_key = :group_3::VARCHAR
    ORDER BY jobs.id
    LIMIT :limit_3::INTEGER
) AS group_3
UNION ALL
SELECT group_4.number, group_4.id, group_4.version, group_4.available_at
FROM (
    SELECT 4 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_4::VARCHAR
      AND jobs.group_key = :group_4::VARCHAR
    ORDER BY jobs.id
    LIMIT :limit_4::INTEGER
) AS group_4
UNION ALL
SELECT group_5.number, group_5.id, group_5.version, group_5.available_at
FROM (
    SELECT 5 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_5::VARCHAR
      AND jobs.group_key = :group_5::VARCHAR
    ORDER BY jobs.id
    LIMIT :limit_5::INTEGER
) AS group_5
UNION ALL
SELECT group_6.number, group_6.id, group_6.version, group_6.available_at
FROM (
    SELECT 6 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_6::VARCHAR
      AND jobs.group_key = :group_6::VARCHAR
    ORDER BY jobs.id
    LIMIT :limit_6::INTEGER
) AS group_6
UNION ALL
SELECT group_7.number, group_7.id, group_7.version, group_7.available_at
FROM (
    SELECT 7 AS number, jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :queue_7::VARCHAR
      AND jobs.group_key = :group_7::VARCHAR
    ORDER BY jobs.id
    LIMIT :limit_7::INTEGER
) AS group_7;
