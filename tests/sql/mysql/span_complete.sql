-- span_complete: Span.complete: all messages that are left
-- Transaction: none has begun, the statement commits by itself
-- Sent by: feeds.store.spans.complete
DELETE FROM jobs_spans
WHERE jobs_spans.id = :span
  AND jobs_spans.version = :held;
