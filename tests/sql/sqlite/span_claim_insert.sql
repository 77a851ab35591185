-- span_claim_insert: SharedCursor.claim: the next messages
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.span_claims.claim > feeds.store.span_claims._hand_out
INSERT INTO jobs_spans(feed, cursor_name, low, high, version, attempts, worker, until)
VALUES (:feed, :cursor_name, :low, :high, :version, :attempts, :worker,
    ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :lease));
