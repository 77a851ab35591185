-- extended_in_transaction: the same in a caller's transaction
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extended
SELECT jobs.id, jobs.version, jobs.claim_token
FROM jobs
WHERE jobs.id IN (:id_1)
ORDER BY jobs.id
FOR UPDATE;
