-- admit_update_jobs: the next job of a group is admitted after one has left
-- Transaction: within BEGIN … COMMIT
-- Sent by: groups.store.groups.admit > groups.store.groups._admit
UPDATE jobs FORCE INDEX (PRIMARY)
SET available_at = CASE WHEN due_at > (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) THEN due_at ELSE (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) END,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END
WHERE id = :of_id
  AND version = :of_version;
