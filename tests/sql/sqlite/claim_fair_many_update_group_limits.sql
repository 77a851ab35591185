-- claim_fair_many_update_group_limits: a fair queue, several jobs, when each of the last claim was of another group
-- Also: claim_fair_few_update_group_limits, claim_fair_limited_update_group_limits,
--   claim_fair_limited_by_time_update_group_limits
-- Transaction: within BEGIN … COMMIT
UPDATE jobs_group_limits
SET name = :name
WHERE jobs_group_limits.queue = :queue_1
  AND jobs_group_limits.scope = :scope_1;
