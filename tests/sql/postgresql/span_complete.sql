-- span_complete: Span.complete: all messages that are left
-- Transaction: none has begun, the statement commits by itself
-- Sent by: feeds.store.spans.complete
-- Prepared once for each connection.
DELETE FROM jobs_spans
WHERE jobs_spans.id = :span::BIGINT
  AND jobs_spans.version = :held::BIGINT;
