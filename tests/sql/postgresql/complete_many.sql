-- complete_many: Queue.complete_many, removal="delete"
-- Also: complete_lock_then_delete_many_delete, complete_grouped_delete_jobs, bury_delete_jobs, bury_many_delete_jobs,
--   bury_exhausted_delete_jobs
-- Transaction: none has begun, the statement commits by itself; or within BEGIN … COMMIT
-- Sent by: store.settle.delete > dialects.base.ReturningDialect.delete_returning
-- Prepared once for each connection.
DELETE FROM jobs
WHERE id = ANY(:ids::BIGINT[])
  AND ((id, version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:ids::BIGINT[], :versions::BIGINT[]) AS wanted(id, version)
)) IS TRUE
RETURNING id;
