-- fail_record_insert_errors: the failed attempts are recorded; those of a job beyond the tenth are deleted
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.history.record_errors
INSERT INTO jobs_errors(job_id, version, attempt, worker, error_class, message, trace, queue, kind)
VALUES (:job_id, :version, :attempt, :worker, :error_class, :message, :trace, :queue, :kind);
