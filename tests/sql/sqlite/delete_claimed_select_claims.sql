-- delete_claimed_select_claims: MessageClaim.delete
-- Also: extend_claim_select_claims, release_claim_select_claims
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.delete > feeds.store.claims._locked
SELECT jobs_claims.seq, jobs_claims.token, jobs_claims.until, jobs_claims.attempts,
    (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) AS now
FROM jobs_claims
WHERE jobs_claims.feed = :feed_1
  AND jobs_claims.seq IN (:seq_1)
ORDER BY jobs_claims.seq;
