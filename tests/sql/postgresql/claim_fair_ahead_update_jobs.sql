-- claim_fair_ahead_update_jobs: a fair queue, a job that was read ahead
-- Also: claim_fair_limited_lone_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.claim > fairness.dialects.postgresql.PostgreSQLFair.take
-- Prepared once for each connection.
UPDATE jobs AS jobs
SET due_at = jobs.available_at,
    available_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :lease::BIGINT,
    version = CASE WHEN jobs.version < 9223372036854775807 THEN jobs.version + 1 ELSE jobs.version END,
    attempts = CASE WHEN jobs.attempts < 2147483647 THEN jobs.attempts + 1 ELSE 2147483647 END,
    unknown_since = CASE WHEN jobs.claim_token IS NULL THEN jobs.unknown_since ELSE NULL END,
    claim_token = :token::VARCHAR, worker = :by_worker::VARCHAR, progress = NULL, progress_note = NULL, padding = NULL
WHERE jobs.id = ANY(ARRAY(
    SELECT jobs.id
    FROM jobs AS jobs
    WHERE id = :of_id::BIGINT
      AND version = :of_version::BIGINT
    FOR UPDATE SKIP LOCKED
))
  AND (
    SELECT other.priority
    FROM jobs AS other
    WHERE other.queue = :in_queue::VARCHAR
      AND other.priority < :priority_0::INTEGER
    ORDER BY other.priority DESC
    LIMIT 1
) IS NULL
RETURNING jobs.id, jobs.kind, jobs.payload, jobs.headers, jobs.priority, jobs.available_at, jobs.due_at, jobs.version,
    jobs.attempts, jobs.max_attempts, jobs.unique_key, jobs.created_at, jobs.last_error, jobs.group_key,
    jobs.callback_id;
