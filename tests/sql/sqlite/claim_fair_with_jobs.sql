-- claim_fair_with_jobs: a fair queue, one job
-- Also: claim_fair_many_with_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.claim > fairness.dialects.base.FairDialect._next_ahead >
--   fairness.dialects.sqlite.SQLiteFair.first_of_groups
WITH RECURSIVE visit(id, found) AS (
    SELECT (
        SELECT next.id
        FROM jobs AS next
        WHERE next.queue = :in_queue
          AND next.priority = :priority_0
          AND next.group_key IS NOT NULL
          AND next.group_key > :cursor_0
        ORDER BY next.group_key, next.available_at, next.id
        LIMIT 1
    ), 0
    UNION ALL
    SELECT (
        SELECT next.id
        FROM jobs AS next
        WHERE next.queue = :in_queue
          AND next.priority = :priority_0
          AND next.group_key IS NOT NULL
          AND next.group_key > (
            SELECT here.group_key
            FROM jobs AS here
            WHERE here.id = visit.id
        )
        ORDER BY next.group_key, next.available_at, next.id
        LIMIT 1
    ), visit.found + (
        SELECT here.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
        FROM jobs AS here
        WHERE here.id = visit.id
    )
    FROM visit
    WHERE visit.id IS NOT NULL
      AND visit.found + (
        SELECT here.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
        FROM jobs AS here
        WHERE here.id = visit.id
    ) < :limit
)
SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
FROM visit CROSS
JOIN jobs AS jobs
WHERE jobs.id = visit.id
  AND jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
LIMIT :limit;
