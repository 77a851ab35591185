-- admit_update_jobs: the next job of a group is admitted after one has left
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.groups.admit > store.groups._admit
UPDATE jobs FORCE INDEX (PRIMARY)
SET available_at = CASE WHEN (jobs.due_at > (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))) THEN jobs.due_at ELSE (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) END,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END
WHERE jobs.id = :of_id
  AND jobs.version = :of_version;
