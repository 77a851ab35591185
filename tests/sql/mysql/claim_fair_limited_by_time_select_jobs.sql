-- claim_fair_limited_by_time_select_jobs: a fair queue with limits of groups, one claim in 64: the jobs that have
--   been due longest
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.candidates_by_time
SELECT *
FROM (
    SELECT *
    FROM (
        SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
        FROM jobs AS jobs
        WHERE jobs.queue = :in_queue
          AND jobs.available_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
          AND jobs.delete_mark = 0
          AND jobs.priority = :priority_0
          AND jobs.available_at >= :floor_0
          AND (jobs.group_key IS NULL OR NOT json_contains(:refused, json_quote(jobs.group_key)))
        ORDER BY jobs.available_at, jobs.id
        LIMIT :limit
    ) AS due_0
    LIMIT :limit
) AS candidate;
