-- stream_release_many_update_jobs: the held jobs go back to the queue, several of them with a key
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.releases.release > spark.streams.store.releases.release_row >
--   dialects.base.ReturningDialect.update_returning
-- Prepared once for each connection.
UPDATE jobs
SET available_at = due_at, version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END,
    claim_token = NULL, worker = NULL, attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END
WHERE id = ANY(:ids::BIGINT[])
  AND ((id, version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:ids::BIGINT[], :versions::BIGINT[]) AS wanted(id, version)
)) IS TRUE
RETURNING id;
