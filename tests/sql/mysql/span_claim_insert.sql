-- span_claim_insert: SharedCursor.claim: the next messages
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.span_claims.claim > feeds.store.span_claims._hand_out
INSERT INTO jobs_spans(feed, cursor_name, low, high, version, attempts, worker, until)
VALUES (:feed, :cursor_name, :low, :high, :version, :attempts, :worker, ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01',
    UTC_TIMESTAMP(6))) + :lease));
