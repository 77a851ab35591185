-- confirm_failed_select_errors: the reply to the COMMIT of a failed attempt was lost: whether it shows
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.look > store.settle._traces
SELECT jobs_errors.job_id, jobs_errors.version
FROM jobs_errors
WHERE jobs_errors.job_id IN (:job_id_1);
