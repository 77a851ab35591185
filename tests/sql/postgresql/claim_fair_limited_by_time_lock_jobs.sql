-- claim_fair_limited_by_time_lock_jobs: a fair queue with limits of groups, one claim in 64: the jobs that have been
--   due longest
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.candidates_by_time
-- Prepared once for each connection.
SELECT *
FROM (
    SELECT *
    FROM (
        SELECT jobs.id, jobs.version, jobs.priority, jobs.group_key
        FROM jobs AS jobs
        WHERE jobs.queue = :in_queue::VARCHAR
          AND jobs.available_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
          AND jobs.delete_mark = 0
          AND jobs.priority = :priority_0::INTEGER
          AND jobs.available_at >= :floor_0::BIGINT
          AND (jobs.group_key IS NULL OR NOT jobs.group_key IN (
            SELECT jsonb_array_elements_text(CAST(:refused::VARCHAR AS JSONB))
        ))
        ORDER BY jobs.available_at, jobs.id
        LIMIT :limit::INTEGER
        FOR UPDATE SKIP LOCKED
    ) AS due_0
    LIMIT :limit::INTEGER
) AS candidate;
