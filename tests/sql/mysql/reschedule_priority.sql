-- reschedule_priority: Queue.reschedule: another priority
-- Transaction: within BEGIN … COMMIT
-- Sent by: administration.store.change_waiting
UPDATE jobs FORCE INDEX (PRIMARY)
SET version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END,
    available_at = CASE WHEN available_at > (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) THEN available_at ELSE (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) END,
    claim_token = NULL, worker = NULL, progress = NULL, progress_note = NULL, priority = :new_priority
WHERE id = :of_id
  AND version = :of_version;
