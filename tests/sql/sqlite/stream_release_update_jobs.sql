-- stream_release_update_jobs: the held jobs go back to the queue
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.releases.release > spark.streams.store.releases.release_row >
--   dialects.sqlite.SQLite.update_returning > dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = due_at, version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END,
    claim_token = NULL, worker = NULL, attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END
WHERE id = :of_id
  AND version = :of_version
RETURNING id;
