-- confirm: the reply to a COMMIT was lost: whether the change shows
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.confirm
SELECT jobs.id, jobs.version, jobs.claim_token, jobs.delete_mark
FROM jobs
WHERE jobs.id IN (:id_1);
