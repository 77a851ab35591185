-- extend_claim_select_claims: MessageClaim.extend
-- Also: release_claim_select_claims
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.extend > feeds.store.claims._of_claim > feeds.store.claims._by_token
SELECT jobs_claims.seq, jobs_claims.token, jobs_claims.until, jobs_claims.attempts,
    (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS now
FROM jobs_claims
WHERE jobs_claims.feed = :feed_1
  AND jobs_claims.token = :token_1;
