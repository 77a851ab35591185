-- stream_release_many_update_jobs: the held jobs go back to the queue, several of them with a key
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.releases.release > spark.streams.store.releases.release_row >
--   dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = jobs.due_at,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts > :attempts_1) THEN jobs.attempts - :attempts_2 ELSE :param_1 END,
    claim_token = :claim_token, worker = :worker
WHERE jobs.id = ANY(:param_2::BIGINT[])
  AND ((jobs.id, jobs.version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:param_2::BIGINT[], :param_3::BIGINT[]) AS wanted(id, version)
)) IS true
RETURNING jobs.id;
