-- interrupt: the stop of a worker interrupts one attempt, which does not count
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.requeue > dialects.sqlite.SQLite.update_returning >
--   dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :delay,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    worker = NULL, progress = NULL, progress_note = NULL, unknown_since = NULL,
    attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END, headers = :headers
WHERE id = :of_id
  AND version = :of_version
RETURNING id;
