-- complete_lock_then_delete_many_lock: Queue.complete_many, removal="lock_then_delete"
-- Also: bury_lock_jobs, bury_many_lock_jobs, bury_exhausted_lock_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.lock > dialects.base.Dialect.hold
-- Prepared once for each connection.
SELECT id, version
FROM jobs
WHERE id = ANY(:ids::BIGINT[])
  AND ((id, version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:ids::BIGINT[], :versions::BIGINT[]) AS wanted(id, version)
)) IS TRUE
ORDER BY id
FOR UPDATE;
