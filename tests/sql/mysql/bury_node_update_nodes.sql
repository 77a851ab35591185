-- bury_node_update_nodes: a node of a graph is dead: a node that runs anyway starts
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.store.leaving._set_state
UPDATE jobs_nodes FORCE INDEX (PRIMARY)
SET state = 'dead', pending = 0, finished_at = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
WHERE jobs_nodes.id IN (:ids);
