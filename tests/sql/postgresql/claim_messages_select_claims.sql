-- claim_messages_select_claims: Feed.claim
-- Also: extend_claim_select_claims
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.claim > feeds.store.claims._until
SELECT jobs_claims.until
FROM jobs_claims
WHERE jobs_claims.feed = :feed_1
  AND jobs_claims.seq = :seq_1;
