-- claim_optimistic_take: optimistic or adaptive, at the head
-- Also: claim_optimistic_slice_take, claim_skip_locked_take, claim_two_priorities_take, claim_any_priority_take,
--   claim_of_kind_take, claim_if_idle_take, claim_fast_path_many_take, claim_fast_path_slice_many_take,
--   claim_fast_path_skip_locked_many_take, claim_fast_path_if_idle_many_take, claim_skip_locked_if_idle_take,
--   claim_fast_path_skip_locked_if_idle_many_take, claim_skip_locked_two_priorities_take, pop_fast_path_many_take,
--   pop_fast_path_slice_many_take, pop_fast_path_skip_locked_many_take
-- Transaction: none has begun, the statement commits by itself; or within BEGIN … COMMIT
-- Sent by: store.lease.claim > dialects.base.Dialect.execute_claim
UPDATE jobs AS jobs FORCE INDEX (PRIMARY)
SET due_at = jobs.available_at, available_at = :until,
    version = CASE WHEN jobs.version < 9223372036854775807 THEN jobs.version + 1 ELSE jobs.version END,
    attempts = CASE WHEN jobs.attempts < 2147483647 THEN jobs.attempts + 1 ELSE 2147483647 END,
    unknown_since = CASE WHEN jobs.claim_token IS NULL THEN jobs.unknown_since ELSE NULL END, claim_token = :token,
    worker = :by_worker, progress = NULL, progress_note = NULL, padding = NULL
WHERE jobs.id IN (:of_ids)
  AND (jobs.id, jobs.version) IN (:of_pairs);
