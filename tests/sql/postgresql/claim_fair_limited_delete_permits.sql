-- claim_fair_limited_delete_permits: a fair queue with limits of groups
-- Also: claim_fair_limited_lone_delete_permits, claim_fair_limited_by_time_delete_permits
-- Transaction: within BEGIN … COMMIT
DELETE FROM jobs_permits
WHERE jobs_permits.queue = :queue_1
  AND jobs_permits.scope = :of_scope
  AND jobs_permits.name = :of_name
  AND jobs_permits.job_id = :of_id;
