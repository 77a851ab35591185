-- fail_many_one_delay_change: Queue.fail_many, another attempt follows, one delay and one error for all
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.requeue
UPDATE jobs FORCE INDEX (PRIMARY)
SET available_at = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :delay,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    worker = NULL, progress = NULL, progress_note = NULL, unknown_since = NULL, last_error = :error
WHERE id IN (:of_ids)
  AND (id, version) IN (:of_pairs);
