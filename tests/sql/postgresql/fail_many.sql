-- fail_many: Queue.fail_many, another attempt follows, each with its own delay and error
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.requeue > dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + CASE id WHEN :of_id_0 THEN :delay_0 WHEN :of_id_1 THEN :delay_1 END,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    worker = NULL, progress = NULL, progress_note = NULL, unknown_since = NULL,
    last_error = CASE id WHEN :of_id_0 THEN :error_0 WHEN :of_id_1 THEN :error_1 END
WHERE id = ANY(:ids::BIGINT[])
  AND ((id, version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:ids::BIGINT[], :versions::BIGINT[]) AS wanted(id, version)
)) IS TRUE
RETURNING id;
