-- claim_fair_lone_select_jobs: the same, with jobs of one group
-- Also: claim_fair_limited_lone_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.claim > fairness.dialects.sqlite.SQLiteFair.claim_now >
--   fairness.dialects.base.FairDialect.claim_now > fairness.dialects.base.FairDialect.candidates >
--   fairness.dialects.base.FairDialect._jobs
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
    FROM jobs AS jobs
    WHERE jobs.queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key IS NOT NULL
      AND jobs.group_key = :key_0
      AND jobs.available_at >= :floor_0
      AND jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
    ORDER BY jobs.available_at, jobs.id
    LIMIT :read_0
) AS of_0;
