-- claim_fair_many_select_jobs: a fair queue, several jobs, when each of the last claim was of another group
-- Also: claim_fair_few_select_jobs, claim_fair_weighted_select_jobs, claim_fair_limited_select_jobs,
--   claim_fair_limited_by_time_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.claim > fairness.dialects.base.FairDialect.claim_now >
--   fairness.dialects.base.FairDialect.candidates > fairness.dialects.base.FairDialect._jobs
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
    FROM jobs AS jobs FORCE INDEX (jobs_fair)
    WHERE jobs.grouped_queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key = :key_0
      AND jobs.grouped_at >= :floor_0
      AND jobs.grouped_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    ORDER BY jobs.grouped_at, jobs.id
    LIMIT :read_0
) AS of_0
UNION ALL
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
    FROM jobs AS jobs FORCE INDEX (jobs_fair)
    WHERE jobs.grouped_queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key = :key_1
      AND jobs.grouped_at >= :floor_0
      AND jobs.grouped_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    ORDER BY jobs.grouped_at, jobs.id
    LIMIT :read_1
) AS of_1
UNION ALL
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
    FROM jobs AS jobs FORCE INDEX (jobs_fair)
    WHERE jobs.grouped_queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key = :key_2
      AND jobs.grouped_at >= :floor_0
      AND jobs.grouped_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    ORDER BY jobs.grouped_at, jobs.id
    LIMIT :read_2
) AS of_2
UNION ALL
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
    FROM jobs AS jobs FORCE INDEX (jobs_fair)
    WHERE jobs.grouped_queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key = :key_3
      AND jobs.grouped_at >= :floor_0
      AND jobs.grouped_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    ORDER BY jobs.grouped_at, jobs.id
    LIMIT :read_3
) AS of_3
UNION ALL
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
    FROM jobs AS jobs FORCE INDEX (jobs_fair)
    WHERE jobs.grouped_queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key = :key_4
      AND jobs.grouped_at >= :floor_0
      AND jobs.grouped_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    ORDER BY jobs.grouped_at, jobs.id
    LIMIT :read_4
) AS of_4
UNION ALL
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
    FROM jobs AS jobs FORCE INDEX (jobs_fair)
    WHERE jobs.grouped_queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key = :key_5
      AND jobs.grouped_at >= :floor_0
      AND jobs.grouped_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    ORDER BY jobs.grouped_at, jobs.id
    LIMIT :read_5
) AS of_5
UNION ALL
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
    FROM jobs AS jobs FORCE INDEX (jobs_fair)
    WHERE jobs.grouped_queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key = :key_6
      AND jobs.grouped_at >= :floor_0
      AND jobs.grouped_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    ORDER BY jobs.grouped_at, jobs.id
    LIMIT :read_6
) AS of_6
UNION ALL
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
    FROM jobs AS jobs FORCE INDEX (jobs_fair)
    WHERE jobs.grouped_queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key = :key_7
      AND jobs.grouped_at >= :floor_0
      AND jobs.grouped_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    ORDER BY jobs.grouped_at, jobs.id
    LIMIT :read_7
) AS of_7
UNION ALL
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
    FROM jobs AS jobs FORCE INDEX (jobs_fair)
    WHERE jobs.grouped_queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key = :key_8
      AND jobs.grouped_at >= :floor_0
      AND jobs.grouped_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    ORDER BY jobs.grouped_at, jobs.id
    LIMIT :read_8
) AS of_8
UNION ALL
SELECT *
FROM (
    SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
    FROM jobs AS jobs FORCE INDEX (jobs_fair)
    WHERE jobs.grouped_queue = :in_queue
      AND jobs.priority = :priority_0
      AND jobs.group_key = :key_9
      AND jobs.grouped_at >= :floor_0
      AND jobs.grouped_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    ORDER BY jobs.grouped_at, jobs.id
    LIMIT :read_9
) AS of_9;
