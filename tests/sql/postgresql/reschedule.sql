-- reschedule: Queue.reschedule: another due time
-- Transaction: within BEGIN … COMMIT
-- Sent by: administration.store.change_waiting > dialects.base.ReturningDialect.update_returning
-- Prepared once for each connection.
UPDATE jobs
SET version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END,
    available_at = CASE WHEN available_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
  AND (CASE WHEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT >= :new_not_before::BIGINT THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT ELSE :new_not_before::BIGINT END) <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) THEN available_at ELSE (CASE WHEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT >= :new_not_before::BIGINT THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :new_after::BIGINT ELSE :new_not_before::BIGINT END) END,
      claim_token = NULL, worker = NULL, progress = NULL, progress_note = NULL
WHERE id = :of_id::BIGINT
  AND version = :of_version::BIGINT
RETURNING id;
