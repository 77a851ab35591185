-- complete_nodes_select_edges: nodes of a graph are completed, one with a result: a node that waits for both starts
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.store.leaving.tell > graphs.store.leaving._tell_children >
--   graphs.store.leaving._children > graphs.store.rows.children_of
SELECT jobs_edges.child, count(*) AS number
FROM jobs_edges
WHERE jobs_edges.parent IN (:ids)
GROUP BY jobs_edges.child;
