-- claim_fair_limited_select_permits: a fair queue with limits of groups
-- Also: claim_fair_limited_lone_select_permits, claim_fair_limited_by_time_select_permits
-- Transaction: within BEGIN … COMMIT
SELECT jobs_permits.name, jobs_permits.job_id, jobs.available_at
FROM jobs_permits
LEFT OUTER JOIN jobs ON jobs.id = jobs_permits.job_id
  AND jobs.claim_token = jobs_permits.claim_token
WHERE jobs_permits.queue = :queue_1
  AND jobs_permits.scope = :scope_1
  AND jobs_permits.name IN (:name_1);
