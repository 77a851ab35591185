-- claim_fair_limited_update_group_spent: a fair queue with limits of groups
-- Also: claim_fair_limited_lone_update_group_spent, claim_fair_limited_by_time_update_group_spent
-- Transaction: within BEGIN … COMMIT
UPDATE jobs_group_spent
SET spent_until = :spent_until
WHERE jobs_group_spent.queue = :queue_1
  AND jobs_group_spent.scope = :scope_1
  AND jobs_group_spent.name = :name_1;
