-- interrupt: the stop of a worker interrupts one attempt, which does not count
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.requeue
UPDATE jobs FORCE INDEX (PRIMARY)
SET available_at = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :delay,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    worker = NULL, progress = NULL, progress_note = NULL, unknown_since = NULL,
    attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END, headers = :headers
WHERE id = :of_id
  AND version = :of_version;
