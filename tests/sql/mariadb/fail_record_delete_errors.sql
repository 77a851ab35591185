-- fail_record_delete_errors: the failed attempts are recorded; those of a job beyond the tenth are deleted
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.history.record_errors
DELETE FROM jobs_errors
WHERE (jobs_errors.job_id, jobs_errors.version) IN (:param_1);
