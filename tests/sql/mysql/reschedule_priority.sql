-- reschedule_priority: Queue.reschedule: another priority
-- Transaction: within BEGIN … COMMIT
-- Sent by: verbs.reschedule.change_waiting
UPDATE jobs FORCE INDEX (PRIMARY)
SET priority = :priority,
    available_at = CASE WHEN (jobs.available_at > (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))) THEN jobs.available_at ELSE (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) END,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    claim_token = :claim_token, worker = :worker, progress = :progress, progress_note = :progress_note
WHERE jobs.id = :of_id
  AND jobs.version = :of_version;
