-- retry_unknown_kinds: Queue.retry_unknown_kinds, several jobs: no handler for the kind
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.requeue > dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + CASE id WHEN :of_id_0 THEN :delay_0 WHEN :of_id_1 THEN :delay_1 END,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    worker = NULL, progress = NULL, progress_note = NULL, unknown_since = :unknown_since,
    attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END, last_error = :error
WHERE id = ANY(:ids::BIGINT[])
  AND ((id, version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:ids::BIGINT[], :versions::BIGINT[]) AS wanted(id, version)
)) IS TRUE
RETURNING id;
