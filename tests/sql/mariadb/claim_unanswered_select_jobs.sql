-- claim_unanswered_select_jobs: the reply to a claim was lost: what it won goes back
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.give_back_claim
SELECT jobs.id, jobs.version
FROM jobs
WHERE jobs.queue = :queue_1
  AND jobs.claim_token = :claim_token_1
ORDER BY jobs.id;
