-- claim_pessimistic_take: pessimistic
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.lease.claim > dialects.seam.ClaimSeam.take
-- Always: version_1 = 9223372036854775807, version_2 = 1, attempts_1 = 2147483647, attempts_2 = 1, param_1 =
--   2147483647
UPDATE jobs FORCE INDEX (PRIMARY)
SET due_at = jobs.available_at,
    available_at = ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :lease),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts < :attempts_1) THEN jobs.attempts + :attempts_2 ELSE :param_1 END,
    unknown_since = CASE WHEN (jobs.claim_token IS NULL) THEN jobs.unknown_since ELSE NULL END, claim_token = :token,
    worker = :by_worker, progress = NULL, progress_note = NULL
WHERE jobs.id IN (:of_ids)
  AND (jobs.id, jobs.version) IN (:of_pairs);
