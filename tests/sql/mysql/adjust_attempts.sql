-- adjust_attempts: Queue.adjust_attempts, one job
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.adjust_attempts
UPDATE jobs FORCE INDEX (PRIMARY)
SET version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END,
    attempts = CASE WHEN attempts + :attempts > 0 THEN attempts + :attempts ELSE 0 END
WHERE id = :of_id
  AND version = :of_version;
