-- delete_claimed_delete_claims: MessageClaim.delete
-- Also: pop_messages_delete_claims
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.delete > feeds.store.claim_rows.remove
DELETE FROM jobs_claims
WHERE jobs_claims.feed = :feed_1
  AND jobs_claims.seq IN (:seq_1);
