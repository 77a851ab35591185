-- reschedule_priority: Queue.reschedule: another priority
-- Transaction: within BEGIN … COMMIT
-- Sent by: verbs.reschedule.change_waiting > dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET priority = :priority,
    available_at = CASE WHEN (jobs.available_at > CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)) THEN jobs.available_at ELSE CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) END,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    claim_token = :claim_token, worker = :worker, progress = :progress, progress_note = :progress_note
WHERE jobs.id = :of_id
  AND jobs.version = :of_version
RETURNING jobs.id;
