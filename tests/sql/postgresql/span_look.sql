-- span_look: Feed.shared: whether there is such a cursor
-- Transaction: none has begun, the statement commits by itself
-- Sent by: feeds.store.span_claims.look
-- Prepared once for each connection.
SELECT jobs_feeds.next_seq, jobs_feeds.first_seq, jobs_feeds.epoch, jobs_cursors.handed,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now, EXISTS(
    SELECT jobs_spans.id
    FROM jobs_spans
    WHERE jobs_spans.feed = :of::BIGINT
      AND jobs_spans.cursor_name = :called::VARCHAR
      AND jobs_spans.until <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
) AS expired, EXISTS(
    SELECT jobs_inbox.id
    FROM jobs_inbox
    WHERE jobs_inbox.feed = :of::BIGINT
) AS waiting
FROM jobs_cursors
JOIN jobs_feeds ON jobs_feeds.id = jobs_cursors.feed
WHERE jobs_cursors.feed = :of::BIGINT
  AND jobs_cursors.name = :called::VARCHAR;
