-- span_take_over_change: SharedCursor.claim: the span whose lease has ended first
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.span_claims.take_over
-- Always: version_1 = 1, attempts_1 = 2147483647, attempts_2 = 1, param_1 = 2147483647
UPDATE jobs_spans
SET version = (jobs_spans.version + :version_1),
    attempts = CASE WHEN (jobs_spans.attempts < :attempts_1) THEN jobs_spans.attempts + :attempts_2 ELSE :param_1 END,
    worker = :holder, until = ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :lease)
WHERE jobs_spans.id = :span;
