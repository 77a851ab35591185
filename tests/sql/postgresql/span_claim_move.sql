-- span_claim_move: SharedCursor.claim: the next messages
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.spans.hand_out
-- Prepared once for each connection.
UPDATE jobs_cursors
SET seen_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT), handed = :upto::BIGINT
WHERE jobs_cursors.feed = :of::BIGINT
  AND jobs_cursors.name = :called::VARCHAR;
