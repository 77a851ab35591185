-- claim_fair_few_insert_jobs: a fair queue, several jobs of any groups
-- Also: claim_fair_ahead_insert_jobs, claim_fair_lone_insert_jobs, claim_fair_weighted_insert_jobs,
--   claim_fair_limited_insert_jobs, claim_fair_limited_lone_insert_jobs, claim_fair_limited_by_time_insert_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: fairness.dialects.base.FairDialect.claim > fairness.dialects.sqlite.SQLiteFair.claim_now >
--   fairness.dialects.base.FairDialect.claim_now > fairness.dialects.sqlite.SQLiteFair.take
INSERT INTO jobs AS jobs(id, queue, payload)
SELECT candidate.id, '', ''
FROM (
    SELECT CAST(given . "key" AS BIGINT) AS id
    FROM json_each(:pairs) AS given
    WHERE (
        SELECT held.version
        FROM jobs AS held
        WHERE held.id = CAST(given . "key" AS BIGINT)
    ) = given.value
) AS candidate
WHERE (
    SELECT other.priority
    FROM jobs AS other
    WHERE other.queue = :in_queue
      AND other.priority < :priority_0
    ORDER BY other.priority DESC
    LIMIT 1
) IS NULL
ON CONFLICT (id) DO UPDATE
SET due_at = jobs.available_at,
    available_at = (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :lease,
    version = CASE WHEN jobs.version < 9223372036854775807 THEN jobs.version + 1 ELSE jobs.version END,
    attempts = CASE WHEN jobs.attempts < 2147483647 THEN jobs.attempts + 1 ELSE 2147483647 END,
    unknown_since = CASE WHEN jobs.claim_token IS NULL THEN jobs.unknown_since ELSE NULL END, claim_token = :token,
    worker = :by_worker, progress = NULL, progress_note = NULL, padding = NULL
RETURNING id, kind, payload, headers, priority, available_at, due_at, version, attempts, max_attempts, unique_key,
    created_at, last_error, group_key, callback_id;
