-- span_look: Feed.shared: whether there is such a cursor
-- Also: span_claim_look
-- Transaction: none has begun, the statement commits by itself
-- Sent by: feeds.store.span_claims.look
SELECT jobs_feeds.next_seq, jobs_feeds.first_seq, jobs_feeds.epoch, jobs_cursors.handed,
    (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) AS now, EXISTS(
    SELECT jobs_spans.id
    FROM jobs_spans
    WHERE jobs_spans.feed = :of
      AND jobs_spans.cursor_name = :called
      AND jobs_spans.until <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
) AS expired, EXISTS(
    SELECT jobs_inbox.id
    FROM jobs_inbox
    WHERE jobs_inbox.feed = :of
) AS waiting
FROM jobs_cursors
JOIN jobs_feeds ON jobs_feeds.id = jobs_cursors.feed
WHERE jobs_cursors.feed = :of
  AND jobs_cursors.name = :called;
