-- bury_node_update_nodes: a node of a graph is dead: a node that runs anyway starts
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.store.leaving._set_state
UPDATE jobs_nodes
SET state = 'dead', pending = 0,
    finished_at = (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
WHERE jobs_nodes.id IN (:ids);
