-- complete_nodes_insert_results: nodes of a graph are completed, one with a result: a node that waits for both starts
-- Transaction: within BEGIN … COMMIT
-- Sent by: graphs.store.leaving.left > graphs.dialects.sqlite.SQLiteForGraphs.insert_all >
--   graphs.dialects.base.GraphDialect.insert_all
INSERT INTO jobs_results(id, result)
VALUES (:new_id, :new_result);
