-- Not sent to: mariadb, mariadb_10.11
-- enqueue_many_grouped_select_jobs: Queue.enqueue_many with groups, delayed: the due times of jobs that wait are kept
-- Also: admit_many_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   groups.store.dependents.Entry.block > groups.store.dependents.Entry.waiting > groups.store.groups.first_members >
--   groups.dialects.mysql.MySQLForGroups.first_in_groups
-- Always: nth_1 = 1, param_1 = 1
SELECT
STRAIGHT_JOIN found.place, jobs.id, jobs.version, jobs.available_at
FROM (
    SELECT given.nth - :nth_1 AS place, (
        SELECT `member` . id
        FROM jobs AS `member` FORCE INDEX (jobs_group)
        WHERE `member` . queue = :of_queue
          AND `member` . group_key = CAST(given.name AS CHAR(200) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin
        ORDER BY `member` . queue, `member` . group_key, `member` . id
        LIMIT :param_1
    ) AS id
    FROM json_table(:keys, '$[*]' COLUMNS(nth FOR ORDINALITY,
        name VARCHAR(200) CHARACTER SET utf8mb4 PATH '$')) AS given
) AS found
INNER JOIN jobs ON jobs.id = found.id;
