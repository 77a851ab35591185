-- reschedule: Queue.reschedule: another due time
-- Transaction: within BEGIN … COMMIT
-- Sent by: administration.store.change_waiting > dialects.sqlite.SQLite.update_returning >
--   dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END,
    available_at = CASE
    WHEN available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
  AND (CASE WHEN (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :new_after >= :new_not_before THEN (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :new_after ELSE :new_not_before END) <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) THEN available_at ELSE (CASE WHEN (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :new_after >= :new_not_before THEN (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :new_after ELSE :new_not_before END) END,
      claim_token = NULL, worker = NULL, progress = NULL, progress_note = NULL
WHERE id = :of_id
  AND version = :of_version
RETURNING id;
