-- complete_nodes_insert_results: nodes of a graph are completed, one with a result: a node that waits for both starts
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.dialects.postgresql.PostgreSQLForGraphs.insert_all
-- Prepared once for each connection.
INSERT INTO jobs_results(id, result)
SELECT given.id, given.result
FROM unnest(:all_id::BIGINT[], :all_result::TEXT[]) AS given(id, result);
