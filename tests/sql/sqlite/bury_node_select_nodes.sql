-- bury_node_select_nodes: a node of a graph is dead: a node that runs anyway starts
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.store.leaving.tell > graphs.store.leaving._tell_children >
--   graphs.store.leaving._children > graphs.store.rows.waiting
SELECT jobs_nodes.id, jobs_nodes.graph_id, jobs_nodes.queue, jobs_nodes.pending, jobs_nodes.if_failed
FROM jobs_nodes
WHERE jobs_nodes.id IN (:ids)
  AND jobs_nodes.state = 'waiting'
ORDER BY jobs_nodes.id;
