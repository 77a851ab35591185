-- bury_node_update_jobs: a node of a graph is dead: a node that runs anyway starts
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.store.leaving.tell > graphs.store.leaving._tell_children >
--   graphs.store.leaving._admitted > graphs.dialects.base.GraphDialect.start >
--   graphs.dialects.base.GraphDialect.admit
-- Prepared once for each connection.
UPDATE jobs
SET available_at = CASE WHEN (jobs.due_at > CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)) THEN jobs.due_at ELSE CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) END,
    version = CASE WHEN (jobs.version < 9223372036854775807) THEN jobs.version + 1 ELSE jobs.version END
WHERE jobs.id = ANY(:ids::BIGINT[])
  AND jobs.available_at = 253355317443020110;
