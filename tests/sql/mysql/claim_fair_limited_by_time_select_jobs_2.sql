-- claim_fair_limited_by_time_select_jobs_2: a fair queue with limits of groups, one claim in 64: the jobs that have
--   been due longest
-- Transaction: within BEGIN … COMMIT
SELECT gap_0.priority
FROM (
    SELECT jobs.priority
    FROM jobs AS jobs
    WHERE jobs.queue = :in_queue
      AND jobs.priority < :priority_0
    ORDER BY jobs.priority DESC
    LIMIT 1
) AS gap_0
UNION ALL
SELECT gap_1.priority
FROM (
    SELECT jobs.priority
    FROM jobs AS jobs
    WHERE jobs.queue = :in_queue
      AND jobs.priority > :priority_0
    ORDER BY jobs.priority
    LIMIT 1
) AS gap_1;
