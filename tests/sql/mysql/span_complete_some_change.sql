-- span_complete_some_change: Span.complete: one message of several
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.spans.settle
UPDATE jobs_spans
SET low = :low, done = :done
WHERE jobs_spans.id = :id_1
  AND jobs_spans.version = :version_1;
