-- complete_lock_then_delete_lock: LeasedJob.complete, removal="lock_then_delete"
-- Also: complete_lock_then_delete_many_lock, bury_lock_jobs, bury_many_lock_jobs, bury_exhausted_lock_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.lock > dialects.postgresql.PostgreSQL.hold
-- Prepared once for each connection.
SELECT jobs.id, jobs.version
FROM jobs
WHERE jobs.id = ANY(:ids::BIGINT[])
  AND ((jobs.id, jobs.version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:ids::BIGINT[], :versions::BIGINT[]) AS wanted(id, version)
)) IS true
ORDER BY jobs.id
FOR UPDATE;
