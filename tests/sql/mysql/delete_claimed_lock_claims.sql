-- delete_claimed_lock_claims: MessageClaim.delete
-- Also: extend_claim_lock_claims, release_claim_lock_claims
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.delete > feeds.store.claims._locked
SELECT jobs_claims.seq, jobs_claims.token, jobs_claims.until, jobs_claims.attempts,
    (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS now
FROM jobs_claims
WHERE jobs_claims.feed = :feed_1
  AND jobs_claims.seq IN (:seq_1)
ORDER BY jobs_claims.seq
FOR UPDATE;
