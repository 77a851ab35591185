-- claim_fair_limited_select_group_spent: a fair queue with limits of groups
-- Also: claim_fair_limited_lone_select_group_spent, claim_fair_limited_by_time_select_group_spent
-- Transaction: within BEGIN … COMMIT
SELECT jobs_group_spent.name, jobs_group_spent.spent_until
FROM jobs_group_spent
WHERE jobs_group_spent.queue = :queue_1
  AND jobs_group_spent.scope = :scope_1
  AND jobs_group_spent.name IN (:name_1)
ORDER BY jobs_group_spent.name;
