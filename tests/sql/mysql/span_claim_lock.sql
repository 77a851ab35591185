-- span_claim_lock: SharedCursor.claim: the next messages
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.spans.hand_out
SELECT jobs_cursors.handed, jobs_cursors.version
FROM jobs_cursors
WHERE jobs_cursors.feed = :feed
  AND jobs_cursors.name = :name
FOR UPDATE;
