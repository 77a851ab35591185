-- complete_node_update_jobs: a node of a graph is completed: a node that waits for it starts
-- Also: complete_nodes_update_jobs, bury_node_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.dialects.sqlite.SQLiteForGraphs.complete >
--   graphs.dialects.base.GraphDialect.admitted > graphs.dialects.base.GraphDialect.admit
-- Always: version_1 = 9223372036854775807, version_2 = 1
UPDATE jobs
SET available_at = CASE WHEN (jobs.due_at > (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)) THEN jobs.due_at ELSE (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) END,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END
WHERE jobs.id IN (:ids)
  AND jobs.available_at = 253355317443020110;
