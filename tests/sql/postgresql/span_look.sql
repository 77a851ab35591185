-- span_look: SharedCursor.claim: the feed, the cursor, and a span whose lease has ended
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.feeds.spans.look
-- Prepared once for each connection.
SELECT jobs_feeds.next_seq, jobs_feeds.first_seq, jobs_feeds.epoch, jobs_cursors.handed,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now, jobs_spans.id, jobs_spans.low,
    jobs_spans.high, jobs_spans.version, jobs_spans.attempts, jobs_spans.done
FROM jobs_cursors
JOIN jobs_feeds ON jobs_feeds.id = jobs_cursors.feed
LEFT OUTER JOIN jobs_spans ON jobs_spans.feed = jobs_cursors.feed
  AND jobs_spans.cursor_name = jobs_cursors.name
  AND jobs_spans.until <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
WHERE jobs_cursors.feed = :feed::BIGINT
  AND jobs_cursors.name = :name::VARCHAR
ORDER BY jobs_spans.until
LIMIT 1;
