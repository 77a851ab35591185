-- claim_fair_lock_group_limits: a fair queue, one job
-- Also: claim_fair_many_lock_group_limits, claim_fair_few_lock_group_limits, claim_fair_ahead_lock_group_limits,
--   claim_fair_lone_lock_group_limits, claim_fair_weighted_lock_group_limits, claim_fair_limited_lock_group_limits,
--   claim_fair_limited_lone_lock_group_limits, claim_fair_limited_by_time_lock_group_limits
-- Transaction: within BEGIN … COMMIT
SELECT jobs_group_limits.name
FROM jobs_group_limits
WHERE jobs_group_limits.queue = :queue_1
  AND jobs_group_limits.scope = :scope_1
FOR UPDATE SKIP LOCKED;
