-- reschedule_priority: Queue.reschedule: another priority
-- Transaction: within BEGIN … COMMIT
-- Sent by: administration.store.change_waiting > dialects.sqlite.SQLite.update_returning >
--   dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END,
    available_at = CASE WHEN available_at > (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) THEN available_at ELSE (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) END,
    claim_token = NULL, worker = NULL, progress = NULL, progress_note = NULL, priority = :new_priority
WHERE id = :of_id
  AND version = :of_version
RETURNING id;
