-- span_complete_some_lock: Span.complete: one message of several
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.spans.settle
SELECT jobs_spans.low, jobs_spans.high, jobs_spans.done
FROM jobs_spans
WHERE jobs_spans.id = :id_1
  AND jobs_spans.version = :version_1
FOR UPDATE;
