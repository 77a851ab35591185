-- Not sent to: mariadb, mariadb_10.11
-- claim_fair_select_jobs_2: a fair queue, one job
-- Also: claim_fair_many_select_jobs, claim_fair_few_select_jobs, claim_fair_lone_select_jobs,
--   claim_fair_weighted_select_jobs, claim_fair_limited_select_jobs, claim_fair_limited_lone_select_jobs,
--   claim_fair_limited_by_time_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.claim > fairness.dialects.base.FairDialect.claim_now >
--   fairness.dialects.base.FairDialect.candidates > fairness.dialects.base.FairDialect._quotas >
--   fairness.dialects.mysql.MySQLFair.groups
SELECT group_key, due
FROM ((
    SELECT 0 AS lap, group_key, min(grouped_at) <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS due
    FROM jobs AS jobs FORCE INDEX (jobs_fair)
    WHERE jobs.grouped_queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key > :cursor_0
      AND (
        SELECT other.priority
        FROM jobs AS other
        WHERE other.queue = :in_queue
          AND other.priority < :priority_0
        ORDER BY other.priority DESC
        LIMIT 1
    ) IS NULL
    GROUP BY grouped_queue, priority, group_key
    ORDER BY grouped_queue, priority, group_key
    LIMIT :limit
) UNION ALL (
    SELECT 1 AS lap, group_key, min(grouped_at) <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS due
    FROM jobs AS jobs FORCE INDEX (jobs_fair)
    WHERE jobs.grouped_queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key <= :cursor_0
      AND (
        SELECT other.priority
        FROM jobs AS other
        WHERE other.queue = :in_queue
          AND other.priority < :priority_0
        ORDER BY other.priority DESC
        LIMIT 1
    ) IS NULL
    GROUP BY grouped_queue, priority, group_key
    ORDER BY grouped_queue, priority, group_key
    LIMIT :limit
)) AS laps
ORDER BY lap, group_key;
