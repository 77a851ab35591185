-- delete_claimed_lock_statement_timestamp: MessageClaim.delete
-- Also: extend_claim_lock_statement_timestamp, release_claim_lock_statement_timestamp
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.delete > feeds.store.claims._locked
SELECT jobs_claims.seq, jobs_claims.token, jobs_claims.until, jobs_claims.attempts,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now
FROM jobs_claims
WHERE jobs_claims.feed = :feed_1
  AND jobs_claims.seq IN (:seq_1)
ORDER BY jobs_claims.seq
FOR UPDATE;
