-- claim_fair_few_with_jobs: a fair queue, several jobs of any groups
-- Also: claim_fair_lone_with_jobs, claim_fair_weighted_with_jobs, claim_fair_limited_with_jobs,
--   claim_fair_limited_lone_with_jobs, claim_fair_limited_by_time_with_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.claim > fairness.dialects.sqlite.SQLiteFair.claim_now >
--   fairness.dialects.base.FairDialect.claim_now > fairness.dialects.base.FairDialect.candidates >
--   fairness.dialects.base.FairDialect._quotas > fairness.dialects.sqlite.SQLiteFair.groups
WITH RECURSIVE ahead_0(k, id, found) AS (
    SELECT CASE WHEN :floor_0 < 9223372036854775807 THEN CASE WHEN :start_credit_0 > 0 THEN :cursor_0 ELSE (
        SELECT next.group_key
        FROM jobs AS next
        WHERE next.queue = :in_queue
          AND next.priority = :priority_0
          AND next.group_key IS NOT NULL
          AND next.group_key > :cursor_0
        ORDER BY next.group_key
        LIMIT 1
    ) END END, NULL, 0
    UNION ALL
    SELECT (
        SELECT next.group_key
        FROM jobs AS next
        WHERE next.queue = :in_queue
          AND next.priority = :priority_0
          AND next.group_key IS NOT NULL
          AND next.group_key > ahead_0.k
        ORDER BY next.group_key
        LIMIT 1
    ), CASE WHEN NOT ahead_0.k IN (
        SELECT one.value
        FROM json_each(:refused) AS one
    ) THEN (
        SELECT head.id
        FROM jobs AS head
        WHERE head.queue = :in_queue
          AND head.priority = :priority_0
          AND head.group_key IS NOT NULL
          AND head.group_key = ahead_0.k
          AND head.available_at >= :floor_0
          AND head.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
        ORDER BY head.available_at, head.id
        LIMIT 1
    ) END, ahead_0.found + (ahead_0.id IS NOT NULL)
    FROM ahead_0
    WHERE ahead_0.k IS NOT NULL
      AND ahead_0.found + (ahead_0.id IS NOT NULL) < :limit
), behind_0(k, id, found) AS (
    SELECT CASE WHEN :floor_0 < 9223372036854775807
      AND (
        SELECT count(ahead_0.id)
        FROM ahead_0
    ) < :limit THEN (
        SELECT next.group_key
        FROM jobs AS next
        WHERE next.queue = :in_queue
          AND next.priority = :priority_0
          AND next.group_key IS NOT NULL
          AND next.group_key > ''
        ORDER BY next.group_key
        LIMIT 1
    ) END, NULL, (
        SELECT count(ahead_0.id)
        FROM ahead_0
    )
    UNION ALL
    SELECT (
        SELECT next.group_key
        FROM jobs AS next
        WHERE next.queue = :in_queue
          AND next.priority = :priority_0
          AND next.group_key IS NOT NULL
          AND next.group_key > behind_0.k
        ORDER BY next.group_key
        LIMIT 1
    ), CASE WHEN NOT behind_0.k IN (
        SELECT one.value
        FROM json_each(:refused) AS one
    ) THEN (
        SELECT head.id
        FROM jobs AS head
        WHERE head.queue = :in_queue
          AND head.priority = :priority_0
          AND head.group_key IS NOT NULL
          AND head.group_key = behind_0.k
          AND head.available_at >= :floor_0
          AND head.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
        ORDER BY head.available_at, head.id
        LIMIT 1
    ) END, behind_0.found + (behind_0.id IS NOT NULL)
    FROM behind_0
    WHERE behind_0.k IS NOT NULL
      AND behind_0.found + (behind_0.id IS NOT NULL) < :limit
      AND (behind_0.k < :cursor_0 OR (behind_0.k = :cursor_0 AND :start_credit_0 <= 0))
)
SELECT jobs.group_key
FROM (
    SELECT id
    FROM ahead_0
    WHERE id IS NOT NULL
    UNION ALL
    SELECT id
    FROM behind_0
    WHERE id IS NOT NULL
) AS found CROSS
JOIN jobs AS jobs
WHERE jobs.id = found.id
  AND (
    SELECT other.priority
    FROM jobs AS other
    WHERE other.queue = :in_queue
      AND other.priority < :priority_0
    ORDER BY other.priority DESC
    LIMIT 1
) IS NULL
LIMIT :limit;
