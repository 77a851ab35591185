-- complete_node_with_nodes: a node of a graph is completed: a node that waits for it starts
-- Also: complete_nodes_with_nodes
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.dialects.postgresql.PostgreSQLForGraphs.complete
-- Prepared once for each connection.
WITH "over" AS (
    UPDATE jobs_nodes
    SET state = 'completed', pending = 0,
        finished_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
    WHERE jobs_nodes.id = ANY(:ids::BIGINT[])
), hit AS (
    SELECT jobs_edges.child AS child, count(*) AS number
    FROM jobs_edges
    WHERE jobs_edges.parent = ANY(:ids::BIGINT[])
    GROUP BY jobs_edges.child
), held AS (
    SELECT jobs_nodes.id AS id, jobs_nodes.state AS state, hit.number AS number
    FROM hit
    JOIN jobs_nodes ON jobs_nodes.id = hit.child
    ORDER BY jobs_nodes.id
    FOR UPDATE OF jobs_nodes
), counted AS (
    UPDATE jobs_nodes
    SET state = CASE WHEN (jobs_nodes.pending <= held.number) THEN 'queued' ELSE jobs_nodes.state END,
        pending = (jobs_nodes.pending - held.number)
    FROM held
    WHERE jobs_nodes.id = held.id
      AND held.state = 'waiting'
    RETURNING jobs_nodes.id, jobs_nodes.graph_id, jobs_nodes.queue, jobs_nodes.pending
), admitted AS (
    UPDATE jobs
    SET available_at = CASE WHEN (jobs.due_at > CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)) THEN jobs.due_at ELSE CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) END,
        version = CASE WHEN (jobs.version < 9223372036854775807) THEN jobs.version + 1 ELSE jobs.version END
    WHERE jobs.id = any(array((
        SELECT counted.id
        FROM counted
        WHERE counted.pending <= 0
    )))
      AND jobs.available_at = 253355317443020110
    RETURNING jobs.id
)
SELECT counted.id, counted.graph_id, counted.queue, counted.id IN (
    SELECT admitted.id
    FROM admitted
) AS admitted
FROM counted
WHERE counted.pending <= 0;
