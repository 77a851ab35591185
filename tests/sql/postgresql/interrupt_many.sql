-- interrupt_many: the stop of a worker interrupts several attempts, which do not count
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.requeue > dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :delay,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    worker = NULL, progress = NULL, progress_note = NULL, unknown_since = NULL,
    attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END,
    headers = CASE id WHEN :of_id_0 THEN :headers_0 WHEN :of_id_1 THEN :headers_1 END
WHERE id = ANY(:ids::BIGINT[])
  AND ((id, version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:ids::BIGINT[], :versions::BIGINT[]) AS wanted(id, version)
)) IS TRUE
RETURNING id;
