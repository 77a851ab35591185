-- extended: a verb missed a lease on which another verb of the same object runs: whether that has extended it
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.settle.extended
SELECT jobs.id, jobs.version, jobs.claim_token
FROM jobs
WHERE jobs.id IN (:id_1)
ORDER BY jobs.id;
