-- reschedule_blocked_update_jobs: Queue.reschedule: another priority for a job that is blocked in its group
-- Transaction: within BEGIN … COMMIT
-- Sent by: administration.store.change_waiting > dialects.sqlite.SQLite.update_returning >
--   dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, priority = :new_priority
WHERE id = :of_id
  AND version = :of_version
RETURNING id;
