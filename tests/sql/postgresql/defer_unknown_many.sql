-- defer_unknown_many: Queue.defer_unknown_many, several jobs: no handler for the kind
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.free > dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + CASE jobs.id WHEN :param_1 THEN :param_2 WHEN :param_3 THEN :param_4 END),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts > :attempts_1) THEN jobs.attempts - :attempts_2 ELSE :param_5 END,
    claim_token = :claim_token, worker = :worker, last_error = :last_error, progress = :progress,
    progress_note = :progress_note, unknown_since = :unknown_since
WHERE jobs.id = ANY(:param_6::BIGINT[])
  AND ((jobs.id, jobs.version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:param_6::BIGINT[], :param_7::BIGINT[]) AS wanted(id, version)
)) IS true
RETURNING jobs.id;
