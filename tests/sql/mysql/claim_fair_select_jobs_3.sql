-- claim_fair_select_jobs_3: a fair queue, one job
-- Also: claim_fair_lone_select_jobs, claim_fair_limited_lone_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.claim > fairness.dialects.base.FairDialect.claim_now >
--   fairness.dialects.base.FairDialect.candidates > fairness.dialects.base.FairDialect._jobs
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
    FROM jobs AS jobs FORCE INDEX (jobs_fair)
    WHERE jobs.grouped_queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key = :key_0
      AND jobs.grouped_at >= :floor_0
      AND jobs.grouped_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    ORDER BY jobs.grouped_at, jobs.id
    LIMIT :read_0
) AS of_0;
