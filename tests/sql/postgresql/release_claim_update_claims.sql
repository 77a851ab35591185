-- release_claim_update_claims: MessageClaim.release
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.release
UPDATE jobs_claims
SET token = :token, until = :until,
    attempts = CASE WHEN (jobs_claims.attempts > :attempts_1) THEN jobs_claims.attempts - :attempts_2
    ELSE :param_1 END
WHERE jobs_claims.feed = :feed_1
  AND jobs_claims.seq IN (:seq_1);
