-- extend_unlocked_lock_jobs: a worker's heartbeat: rows that others have locked are stepped over
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend_unlocked
SELECT jobs.id, jobs.version
FROM jobs
WHERE jobs.id = ANY(:param_1::BIGINT[])
  AND ((jobs.id, jobs.version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:param_1::BIGINT[], :param_2::BIGINT[]) AS wanted(id, version)
)) IS true
ORDER BY jobs.id
FOR UPDATE SKIP LOCKED;
