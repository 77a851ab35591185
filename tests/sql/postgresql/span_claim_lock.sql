-- span_claim_lock: SharedCursor.claim: the next messages
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.spans.hand_out
-- Prepared once for each connection.
SELECT jobs_cursors.handed, jobs_cursors.version
FROM jobs_cursors
WHERE jobs_cursors.feed = :feed::BIGINT
  AND jobs_cursors.name = :name::VARCHAR
FOR UPDATE;
