-- interrupt_many_change: the stop of a worker interrupts several attempts, which do not count
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.requeue
UPDATE jobs FORCE INDEX (PRIMARY)
SET available_at = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :delay,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    worker = NULL, progress = NULL, progress_note = NULL, unknown_since = NULL,
    attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END,
    headers = CASE id WHEN :of_id_0 THEN :headers_0 WHEN :of_id_1 THEN :headers_1 END
WHERE id IN (:of_ids)
  AND (id, version) IN (:of_pairs);
