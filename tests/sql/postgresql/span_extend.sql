-- span_extend: Span.extend
-- Transaction: none has begun, the statement commits by itself
-- Sent by: feeds.store.spans.extend
-- Prepared once for each connection.
UPDATE jobs_spans
SET until = (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :lease::BIGINT)
WHERE jobs_spans.id = :span::BIGINT
  AND jobs_spans.version = :held::BIGINT;
