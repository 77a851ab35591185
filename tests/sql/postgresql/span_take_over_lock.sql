-- span_take_over_lock: SharedCursor.claim: the span whose lease has ended first
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.span_claims.take_over
-- Prepared once for each connection.
SELECT jobs_spans.id, jobs_spans.low, jobs_spans.high, jobs_spans.version, jobs_spans.attempts, jobs_spans.done
FROM jobs_spans
WHERE jobs_spans.feed = :of::BIGINT
  AND jobs_spans.cursor_name = :called::VARCHAR
  AND jobs_spans.until <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
ORDER BY jobs_spans.until
LIMIT 1
FOR UPDATE SKIP LOCKED;
