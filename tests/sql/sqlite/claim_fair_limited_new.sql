-- claim_fair_limited_new: the first claim that meets a limit makes its row
-- Transaction: within BEGIN … COMMIT
INSERT INTO jobs_group_spent(queue, scope, name, spent_until)
VALUES (:queue, :scope, :name, :spent_until);
