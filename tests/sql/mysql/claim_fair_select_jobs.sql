-- Not sent to: mariadb, mariadb_10.11
-- claim_fair_select_jobs: a fair queue, one job
-- Also: claim_fair_many_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.claim > fairness.dialects.base.FairDialect._next_ahead >
--   fairness.dialects.mysql.MySQLFair.first_of_groups
SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
FROM (
    SELECT group_key, min(grouped_at) AS head
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
) AS visit
JOIN jobs AS jobs FORCE INDEX (PRIMARY) ON jobs.id = (
    SELECT head.id
    FROM jobs AS head FORCE INDEX (jobs_fair)
    WHERE head.grouped_queue = :in_queue
      AND head.priority = :priority_0
      AND head.group_key = visit.group_key
      AND head.grouped_at = visit.head
    ORDER BY head.id
    LIMIT 1
)
WHERE visit.head <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
ORDER BY visit.group_key;
