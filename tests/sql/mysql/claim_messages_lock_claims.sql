-- claim_messages_lock_claims: Feed.claim
-- Also: pop_messages_lock_claims
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.claim
SELECT jobs_claims.seq, jobs_claims.attempts, jobs_claims.expires_at,
    (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS now
FROM jobs_claims
WHERE jobs_claims.feed = :feed_1
  AND jobs_claims.until <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
ORDER BY jobs_claims.seq
LIMIT :param_1
FOR UPDATE SKIP LOCKED;
