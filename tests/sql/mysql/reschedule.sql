-- reschedule: Queue.reschedule: another due time
-- Transaction: within BEGIN … COMMIT
-- Sent by: administration.store.change_waiting
UPDATE jobs FORCE INDEX (PRIMARY)
SET version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END,
    available_at = CASE WHEN available_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
  AND (CASE WHEN (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :new_after >= :new_not_before THEN (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :new_after ELSE :new_not_before END) <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) THEN available_at ELSE (CASE WHEN (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :new_after >= :new_not_before THEN (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :new_after ELSE :new_not_before END) END,
      claim_token = NULL, worker = NULL, progress = NULL, progress_note = NULL
WHERE id = :of_id
  AND version = :of_version;
