-- span_take_over_change: SharedCursor.claim: the span whose lease has ended first
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.span_claims.take_over
-- Prepared once for each connection.
UPDATE jobs_spans
SET version = (jobs_spans.version + 1),
    attempts = CASE WHEN (jobs_spans.attempts < 2147483647) THEN jobs_spans.attempts + 1 ELSE 2147483647 END,
    worker = :holder::VARCHAR,
    until = (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :lease::BIGINT)
WHERE jobs_spans.id = :span::BIGINT;
