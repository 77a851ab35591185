-- bury_node_update_nodes_2: a node of a graph is dead: a node that runs anyway starts
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.store.leaving.tell > graphs.store.leaving._tell_children >
--   graphs.store.leaving._admitted > graphs.dialects.base.GraphDialect.start
UPDATE jobs_nodes
SET state = 'queued', pending = 0
WHERE jobs_nodes.id IN (:ids);
