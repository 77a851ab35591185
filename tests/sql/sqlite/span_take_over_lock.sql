-- span_take_over_lock: SharedCursor.claim: the span whose lease has ended first
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.span_claims.take_over
-- Always: param_1 = 1, param_2 = 0
SELECT jobs_spans.id, jobs_spans.low, jobs_spans.high, jobs_spans.version, jobs_spans.attempts, jobs_spans.done
FROM jobs_spans
WHERE jobs_spans.feed = :of
  AND jobs_spans.cursor_name = :called
  AND jobs_spans.until <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
ORDER BY jobs_spans.until
LIMIT :param_1
OFFSET :param_2;
