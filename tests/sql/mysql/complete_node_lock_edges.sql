-- complete_node_lock_edges: a node of a graph is completed: a node that waits for it starts
-- Also: bury_node_lock_edges
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.store.leaving.tell > graphs.store.leaving._tell_children >
--   graphs.store.leaving._children > graphs.dialects.mysql.MySQLForGraphs.waiting_for
SELECT jobs_nodes.id, jobs_nodes.graph_id, jobs_nodes.queue, jobs_nodes.pending, jobs_nodes.if_failed
FROM jobs_edges
INNER JOIN jobs_nodes ON jobs_nodes.id = jobs_edges.child
WHERE jobs_edges.parent = :parent
  AND jobs_nodes.state = 'waiting'
ORDER BY jobs_edges.child
FOR UPDATE;
