-- span_extend: Span.extend
-- Transaction: none has begun, the statement commits by itself
-- Sent by: feeds.store.spans.extend
UPDATE jobs_spans
SET until = ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :lease)
WHERE jobs_spans.id = :span
  AND jobs_spans.version = :held;
