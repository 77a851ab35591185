-- span_claim_insert: SharedCursor.claim: the next messages
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.spans.hand_out
INSERT INTO jobs_spans(feed, cursor_name, low, high, version, attempts, worker, until)
VALUES (:feed, :cursor_name, :low, :high, :version, :attempts, :worker,
    (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :now_us_1))
RETURNING jobs_spans.id;
