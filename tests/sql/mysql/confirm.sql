-- confirm: the reply to a COMMIT was lost: whether the change shows
-- Also: confirm_dead_select_jobs, confirm_failed_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.look
SELECT jobs.id, jobs.version, jobs.claim_token, jobs.delete_mark
FROM jobs
WHERE jobs.id IN (:id_1);
