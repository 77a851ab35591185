-- complete_retained_insert_finished: the results of completed jobs are kept
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.history.record_finished
INSERT INTO jobs_finished(id, queue, kind, payload, attempts, worker, result, created_at, finished_at, expires_at)
VALUES (:id, :queue, :kind, :payload, :attempts, :worker, :result, :created_at, :finished_at, :expires_at);
