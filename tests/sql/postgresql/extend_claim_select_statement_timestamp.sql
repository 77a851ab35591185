-- extend_claim_select_statement_timestamp: MessageClaim.extend
-- Also: release_claim_select_statement_timestamp
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.extend > feeds.store.claims._of_claim > feeds.store.claims._by_token
SELECT jobs_claims.seq, jobs_claims.token, jobs_claims.until, jobs_claims.attempts,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now
FROM jobs_claims
WHERE jobs_claims.feed = :feed_1
  AND jobs_claims.token = :token_1;
