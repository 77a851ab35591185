-- span_take_over_lock: SharedCursor.claim: a span whose lease has ended
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.spans.take_over
-- Prepared once for each connection.
SELECT jobs_spans.low, jobs_spans.done
FROM jobs_spans
WHERE jobs_spans.id = :span::BIGINT
  AND jobs_spans.version = :held::BIGINT
  AND jobs_spans.until <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
FOR UPDATE SKIP LOCKED;
