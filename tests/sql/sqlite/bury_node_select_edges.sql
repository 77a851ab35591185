-- bury_node_select_edges: a node of a graph is dead: a node that runs anyway starts
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.store.leaving.tell > graphs.store.leaving._tell_children >
--   graphs.store.leaving._children > graphs.store.rows.edges_from
SELECT jobs_edges.parent, jobs_edges.child
FROM jobs_edges
WHERE jobs_edges.parent IN (:ids);
