-- complete_node_update_jobs: a node of a graph is completed: a node that waits for it starts
-- Also: complete_nodes_update_jobs, bury_node_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.store.leaving.tell > graphs.store.leaving._tell_children >
--   graphs.store.leaving._admitted > graphs.dialects.mysql.MySQLForGraphs.start >
--   graphs.dialects.base.GraphDialect.start > graphs.dialects.base.GraphDialect.admit
-- Always: version_1 = 9223372036854775807, version_2 = 1
UPDATE jobs FORCE INDEX (PRIMARY)
SET available_at = CASE WHEN (jobs.due_at > (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))) THEN jobs.due_at ELSE (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) END,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END
WHERE jobs.id IN (:ids)
  AND jobs.available_at = 253355317443020110;
