-- span_extend: Span.extend
-- Transaction: none has begun, the statement commits by itself
-- Sent by: feeds.store.spans.extend
UPDATE jobs_spans
SET until = ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :lease)
WHERE jobs_spans.id = :span
  AND jobs_spans.version = :held;
