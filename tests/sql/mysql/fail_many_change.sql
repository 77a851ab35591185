-- fail_many_change: Queue.fail_many, another attempt follows, each with its own delay and error
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.requeue
UPDATE jobs FORCE INDEX (PRIMARY)
SET available_at = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + CASE id WHEN :of_id_0 THEN :delay_0 WHEN :of_id_1 THEN :delay_1 END,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    worker = NULL, progress = NULL, progress_note = NULL, unknown_since = NULL,
    last_error = CASE id WHEN :of_id_0 THEN :error_0 WHEN :of_id_1 THEN :error_1 END
WHERE id IN (:of_ids)
  AND (id, version) IN (:of_pairs);
