-- span_claim_move: SharedCursor.claim: the next messages
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.span_claims.claim > feeds.store.span_claims._hand_out
UPDATE jobs_cursors
SET seen_at = (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000), handed = :upto
WHERE jobs_cursors.feed = :of
  AND jobs_cursors.name = :called;
