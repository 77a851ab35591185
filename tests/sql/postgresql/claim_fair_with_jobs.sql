-- claim_fair_with_jobs: a fair queue, one job
-- Also: claim_fair_many_with_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.claim > fairness.dialects.base.FairDialect._next_ahead >
--   fairness.dialects.postgresql.PostgreSQLFair.first_of_groups
-- Prepared once for each connection.
WITH RECURSIVE visit AS ((
    SELECT next.id, next.version, next.priority, next.group_key, next.available_at
    FROM jobs AS next
    WHERE next.queue = :in_queue::VARCHAR
      AND next.priority = :priority_0::INTEGER
      AND next.group_key IS NOT NULL
      AND next.group_key ~ > ~ :cursor_0::VARCHAR
    ORDER BY next.group_key USING ~ < ~, next.available_at, next.id
    LIMIT 1
) UNION ALL SELECT later.* FROM visit CROSS JOIN LATERAL(
    SELECT next.id, next.version, next.priority, next.group_key, next.available_at
    FROM jobs AS next
    WHERE next.queue = :in_queue::VARCHAR
      AND next.priority = :priority_0::INTEGER
      AND next.group_key IS NOT NULL
      AND next.group_key ~ > ~ visit.group_key
    ORDER BY next.group_key USING ~ < ~, next.available_at, next.id
    LIMIT 1
) AS later)
SELECT visit.id, visit.version, visit.priority, visit.group_key
FROM visit
WHERE visit.available_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
LIMIT :limit::INTEGER;
