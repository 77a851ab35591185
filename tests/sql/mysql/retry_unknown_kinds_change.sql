-- retry_unknown_kinds_change: Queue.retry_unknown_kinds, several jobs: no handler for the kind
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.requeue
UPDATE jobs FORCE INDEX (PRIMARY)
SET available_at = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + CASE id WHEN :of_id_0 THEN :delay_0 WHEN :of_id_1 THEN :delay_1 END,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    worker = NULL, progress = NULL, progress_note = NULL, unknown_since = :unknown_since,
    attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END, last_error = :error
WHERE id IN (:of_ids)
  AND (id, version) IN (:of_pairs);
