-- snooze_many_change: Queue.snooze_many and Queue.release_many
-- Also: claim_unanswered_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.free
UPDATE jobs FORCE INDEX (PRIMARY)
SET available_at = ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :param_1),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts > :attempts_1) THEN jobs.attempts - :attempts_2 ELSE :param_2 END,
    claim_token = :claim_token, worker = :worker, progress = :progress, progress_note = :progress_note,
    unknown_since = :unknown_since
WHERE jobs.id IN (:of_ids)
  AND (jobs.id, jobs.version) IN (:of_pairs);
