-- claim_optimistic_read_back: optimistic or adaptive, at the head
-- Also: claim_optimistic_slice_read_back, claim_skip_locked_read_back, claim_pessimistic_read_back,
--   claim_pessimistic_one_read_back, claim_two_priorities_read_back, claim_any_priority_read_back,
--   claim_of_kind_read_back, claim_if_idle_read_back, claim_fast_path_many_read_back,
--   claim_fast_path_slice_many_read_back, claim_fast_path_if_idle_many_read_back,
--   claim_skip_locked_if_idle_read_back, claim_skip_locked_two_priorities_read_back, claim_fair_select_jobs,
--   claim_fair_many_select_jobs, claim_fair_few_select_jobs, claim_fair_ahead_select_jobs,
--   claim_fair_lone_select_jobs, claim_fair_weighted_select_jobs, claim_fair_limited_select_jobs,
--   claim_fair_limited_lone_select_jobs, claim_fair_limited_by_time_select_jobs
-- Transaction: none has begun, the statement commits by itself; or within BEGIN … COMMIT
-- Sent by: store.lease.claim > dialects.base.Dialect.execute_claim
SELECT jobs.id, jobs.kind, jobs.payload, jobs.headers, jobs.priority, jobs.available_at, jobs.due_at, jobs.version,
    jobs.attempts, jobs.max_attempts, jobs.unique_key, jobs.created_at, jobs.last_error, jobs.group_key,
    jobs.callback_id
FROM jobs AS jobs FORCE INDEX (PRIMARY)
WHERE jobs.id IN (:of_ids)
  AND jobs.claim_token = :token;
