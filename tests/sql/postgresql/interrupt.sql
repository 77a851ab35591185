-- interrupt: the stop of a worker interrupts one attempt, which does not count
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.requeue > dialects.base.ReturningDialect.update_returning
-- Prepared once for each connection.
UPDATE jobs
SET available_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :delay::BIGINT,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    worker = NULL, progress = NULL, progress_note = NULL, unknown_since = NULL,
    attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END, headers = :headers::VARCHAR
WHERE id = :of_id::BIGINT
  AND version = :of_version::BIGINT
RETURNING id;
