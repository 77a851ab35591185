-- reschedule_blocked_update_jobs: Queue.reschedule: another priority for a job that is blocked in its group
-- Transaction: within BEGIN … COMMIT
-- Sent by: verbs.reschedule.change_waiting > dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET priority = :priority,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END
WHERE jobs.id = :of_id
  AND jobs.version = :of_version
RETURNING jobs.id;
