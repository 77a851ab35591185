-- complete_node_update_nodes: a node of a graph is completed: a node that waits for it starts
-- Also: complete_nodes_update_nodes
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.dialects.sqlite.SQLiteForGraphs.complete
UPDATE jobs_nodes
SET state = 'completed', pending = 0,
    finished_at = (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
WHERE jobs_nodes.id IN (:ids);
