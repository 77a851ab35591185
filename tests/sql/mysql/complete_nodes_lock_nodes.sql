-- complete_nodes_lock_nodes: nodes of a graph are completed, one with a result: a node that waits for both starts
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.store.leaving.tell > graphs.store.leaving._tell_children >
--   graphs.store.leaving._children > graphs.store.rows.waiting
SELECT jobs_nodes.id, jobs_nodes.graph_id, jobs_nodes.queue, jobs_nodes.pending, jobs_nodes.if_failed
FROM jobs_nodes FORCE INDEX (PRIMARY)
WHERE jobs_nodes.id IN (:ids)
  AND jobs_nodes.state = 'waiting'
ORDER BY jobs_nodes.id
FOR UPDATE;
