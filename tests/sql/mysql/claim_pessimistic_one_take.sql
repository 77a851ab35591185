-- claim_pessimistic_one_take: pessimistic, one job
-- Also: claim_fair_update_jobs, claim_fair_ahead_update_jobs, claim_fair_lone_update_jobs,
--   claim_fair_limited_lone_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.lease.claim > dialects.base.Dialect.execute_claim
UPDATE jobs AS jobs FORCE INDEX (PRIMARY)
SET due_at = jobs.available_at, available_at = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :lease,
    version = CASE WHEN jobs.version < 9223372036854775807 THEN jobs.version + 1 ELSE jobs.version END,
    attempts = CASE WHEN jobs.attempts < 2147483647 THEN jobs.attempts + 1 ELSE 2147483647 END,
    unknown_since = CASE WHEN jobs.claim_token IS NULL THEN jobs.unknown_since ELSE NULL END, claim_token = :token,
    worker = :by_worker, progress = NULL, progress_note = NULL, padding = NULL
WHERE jobs.id = :of_id
  AND jobs.version = :of_version;
