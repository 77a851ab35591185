-- span_take_over_lock: SharedCursor.claim: a span whose lease has ended
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.spans.take_over
SELECT jobs_spans.low, jobs_spans.done
FROM jobs_spans
WHERE jobs_spans.id = :span
  AND jobs_spans.version = :held
  AND jobs_spans.until <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
FOR UPDATE SKIP LOCKED;
