-- bury_node_update_nodes: a node of a graph is dead: a node that runs anyway starts
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.store.leaving._set_state
-- Prepared once for each connection.
UPDATE jobs_nodes
SET state = 'dead', pending = 0, finished_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
WHERE jobs_nodes.id = ANY(:ids::BIGINT[]);
