-- defer_unknown: Queue.defer_unknown_many, one job: no handler for the kind
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.free
UPDATE jobs FORCE INDEX (PRIMARY)
SET available_at = ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :param_1),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts > :attempts_1) THEN jobs.attempts - :attempts_2 ELSE :param_2 END,
    claim_token = :claim_token, worker = :worker, last_error = :last_error, progress = :progress,
    progress_note = :progress_note, unknown_since = :unknown_since
WHERE jobs.id = :of_id
  AND jobs.version = :of_version;
