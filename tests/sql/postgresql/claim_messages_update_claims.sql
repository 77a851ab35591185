-- claim_messages_update_claims: Feed.claim
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.claim > feeds.store.claims._lease
UPDATE jobs_claims
SET token = :token, until = (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :now_us_1),
    attempts = (jobs_claims.attempts + :attempts_1),
    expires_at = CASE
    WHEN (jobs_claims.expires_at < CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :now_us_2 + :param_1)
    THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :now_us_2 + :param_1
    ELSE jobs_claims.expires_at END
WHERE jobs_claims.feed = :feed_1
  AND jobs_claims.seq IN (:seq_1);
