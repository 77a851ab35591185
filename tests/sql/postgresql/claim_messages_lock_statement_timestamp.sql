-- claim_messages_lock_statement_timestamp: Feed.claim
-- Also: pop_messages_lock_statement_timestamp
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.claim
SELECT jobs_claims.seq, jobs_claims.attempts, jobs_claims.expires_at,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now
FROM jobs_claims
WHERE jobs_claims.feed = :feed_1
  AND jobs_claims.until <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
ORDER BY jobs_claims.seq
LIMIT :param_1
FOR UPDATE SKIP LOCKED;
