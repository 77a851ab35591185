-- claim_messages_update_claims: Feed.claim
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.claim > feeds.store.claims._lease
UPDATE jobs_claims
SET token = :token, until = ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :now_us_1),
    attempts = (jobs_claims.attempts + :attempts_1),
    expires_at = CASE
    WHEN (jobs_claims.expires_at < (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :now_us_2 + :param_1)
    THEN (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :now_us_2 + :param_1
    ELSE jobs_claims.expires_at END
WHERE jobs_claims.feed = :feed_1
  AND jobs_claims.seq IN (:seq_1);
