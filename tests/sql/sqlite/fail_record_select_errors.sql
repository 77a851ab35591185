-- fail_record_select_errors: the failed attempts are recorded; those of a job beyond the tenth are deleted
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.history.record_errors
SELECT numbered.job_id, numbered.version
FROM (
    SELECT jobs_errors.job_id AS job_id, jobs_errors.version AS version,
        row_number() OVER (PARTITION BY jobs_errors.job_id ORDER BY jobs_errors.version DESC) AS place
    FROM jobs_errors
    WHERE jobs_errors.job_id IN (:job_id_1)
) AS numbered
WHERE numbered.place > :place_1;
