-- claim_fair_ahead_select_jobs: a fair queue, a job that was read ahead
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.claim > fairness.dialects.base.FairDialect._is_allowed
SELECT one.allowed
FROM (
    SELECT 1 AS allowed
) AS one
WHERE (
    SELECT other.priority
    FROM jobs AS other
    WHERE other.queue = :in_queue
      AND other.priority < :priority_0
    ORDER BY other.priority DESC
    LIMIT 1
) IS NULL;
