-- claim_messages_select_claims: Feed.claim
-- Also: pop_messages_select_claims
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.claim
SELECT jobs_claims.seq, jobs_claims.attempts, jobs_claims.expires_at,
    (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) AS now
FROM jobs_claims
WHERE jobs_claims.feed = :feed_1
  AND jobs_claims.until <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
ORDER BY jobs_claims.seq
LIMIT :param_1
OFFSET :param_2;
