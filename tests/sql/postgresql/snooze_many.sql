-- snooze_many: Queue.snooze_many and Queue.release_many
-- Also: claim_unanswered_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.free > dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :param_1),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts > :attempts_1) THEN jobs.attempts - :attempts_2 ELSE :param_2 END,
    claim_token = :claim_token, worker = :worker, progress = :progress, progress_note = :progress_note,
    unknown_since = :unknown_since
WHERE jobs.id = ANY(:param_3::BIGINT[])
  AND ((jobs.id, jobs.version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:param_3::BIGINT[], :param_4::BIGINT[]) AS wanted(id, version)
)) IS true
RETURNING jobs.id;
