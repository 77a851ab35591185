-- claim_fair_limited_insert_permits: a fair queue with limits of groups
-- Also: claim_fair_limited_lone_insert_permits, claim_fair_limited_by_time_insert_permits
-- Transaction: within BEGIN … COMMIT
INSERT INTO jobs_permits(queue, scope, name, job_id, claim_token, until)
VALUES (:queue, :scope, :name, :job_id, :claim_token, :until);
