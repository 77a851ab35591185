-- complete_node_update_nodes_3: a node of a graph is completed: a node that waits for it starts
-- Also: complete_nodes_update_nodes, bury_node_update_nodes
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.store.leaving.tell > graphs.store.leaving._tell_children >
--   graphs.store.leaving._admitted > graphs.dialects.mysql.MySQLForGraphs.start >
--   graphs.dialects.base.GraphDialect.start
UPDATE jobs_nodes FORCE INDEX (PRIMARY)
SET state = 'queued', pending = 0
WHERE jobs_nodes.id IN (:ids);
