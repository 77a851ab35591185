-- extend_unlocked_lock_jobs: a worker's heartbeat: rows that others have locked are stepped over
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend_unlocked > dialects.base.Dialect.hold
-- Prepared once for each connection.
SELECT id, version
FROM jobs
WHERE id = ANY(:ids::BIGINT[])
  AND ((id, version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:ids::BIGINT[], :versions::BIGINT[]) AS wanted(id, version)
)) IS TRUE
ORDER BY id
FOR UPDATE SKIP LOCKED;
