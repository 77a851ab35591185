-- span_take_over_lock: SharedCursor.claim: the span whose lease has ended first
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.span_claims.take_over
-- Always: param_1 = 1
SELECT jobs_spans.id, jobs_spans.low, jobs_spans.high, jobs_spans.version, jobs_spans.attempts, jobs_spans.done
FROM jobs_spans
WHERE jobs_spans.feed = :of
  AND jobs_spans.cursor_name = :called
  AND jobs_spans.until <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
ORDER BY jobs_spans.until
LIMIT :param_1
FOR UPDATE SKIP LOCKED;
