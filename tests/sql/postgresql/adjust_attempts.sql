-- adjust_attempts: Queue.adjust_attempts, one job
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.adjust_attempts > dialects.base.ReturningDialect.update_returning
-- Prepared once for each connection.
UPDATE jobs
SET version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END,
    attempts = CASE WHEN attempts + :attempts::INTEGER > 0 THEN attempts + :attempts::INTEGER ELSE 0 END
WHERE id = :of_id::BIGINT
  AND version = :of_version::BIGINT
RETURNING id;
