-- complete_node_update_nodes_2: a node of a graph is completed: a node that waits for it starts
-- Also: complete_nodes_update_nodes
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.dialects.sqlite.SQLiteForGraphs.complete
UPDATE jobs_nodes
SET state = CASE WHEN (jobs_nodes.pending <= hit.number) THEN 'queued' ELSE jobs_nodes.state END,
    pending = (jobs_nodes.pending - hit.number)
FROM (
    SELECT jobs_edges.child AS child, count(*) AS number
    FROM jobs_edges
    WHERE jobs_edges.parent IN (:ids)
    GROUP BY jobs_edges.child
) AS hit
WHERE jobs_nodes.id = hit.child
  AND jobs_nodes.state = 'waiting'
RETURNING id, graph_id, queue, pending;
