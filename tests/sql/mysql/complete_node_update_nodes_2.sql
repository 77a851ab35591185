-- complete_node_update_nodes_2: a node of a graph is completed: a node that waits for it starts
-- Also: complete_nodes_update_nodes, bury_node_update_nodes
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.store.leaving.tell > graphs.store.leaving._tell_children >
--   graphs.store.leaving._admitted > graphs.dialects.mysql.MySQLForGraphs.start
-- Always: version_1 = 9223372036854775807, version_2 = 1
UPDATE jobs_nodes, jobs
SET jobs.available_at = CASE WHEN (jobs.due_at > (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))) THEN jobs.due_at ELSE (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) END,
    jobs.version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    jobs_nodes.state = 'queued', jobs_nodes.pending = 0
WHERE jobs_nodes.id IN (:ids)
  AND jobs.id = jobs_nodes.id
  AND jobs.available_at = 253355317443020110;
