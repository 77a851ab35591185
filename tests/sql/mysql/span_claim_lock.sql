-- span_claim_lock: SharedCursor.claim: the next messages
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.span_claims.claim > feeds.store.span_claims._hand_out
SELECT jobs_cursors.handed, jobs_cursors.version
FROM jobs_cursors
WHERE jobs_cursors.feed = :of
  AND jobs_cursors.name = :called
FOR UPDATE;
