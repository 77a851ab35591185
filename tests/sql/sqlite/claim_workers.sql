-- claim_workers: clients with different worker names have claimed together: each job shows that of its client
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.settle.set_workers
UPDATE jobs
SET worker = CASE jobs.id WHEN :param_1 THEN :param_2 WHEN :param_3 THEN :param_4 END
WHERE jobs.id IN (:id_1)
  AND jobs.claim_token = :claim_token_1;
