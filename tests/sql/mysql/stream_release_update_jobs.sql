-- stream_release_update_jobs: the held jobs go back to the queue
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.releases.release > spark.streams.store.releases.release_row
UPDATE jobs FORCE INDEX (PRIMARY)
SET available_at = jobs.due_at,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts > :attempts_1) THEN jobs.attempts - :attempts_2 ELSE :param_1 END,
    claim_token = :claim_token, worker = :worker
WHERE jobs.id = :of_id
  AND jobs.version = :of_version;
