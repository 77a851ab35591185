-- enqueue_debounce_update_jobs: Queue.enqueue, on_duplicate="debounce", a live job has the key
-- Also: enqueue_debounce_held_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert > store.enqueue._replace
UPDATE jobs
SET kind = :kind, payload = :payload, headers = :headers, priority = :priority,
    available_at = CASE WHEN (jobs.available_at = :available_at_1) THEN :param_1 ELSE CASE WHEN ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :now_us_1 >= :param_2) THEN (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :now_us_2 ELSE :param_3 END END,
    due_at = CASE WHEN (jobs.available_at = :available_at_1) THEN CASE WHEN ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :now_us_1 >= :param_2) THEN (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :now_us_2 ELSE :param_3 END END,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = :attempts, max_attempts = :max_attempts, claim_token = :claim_token, worker = :worker,
    created_at = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))), last_error = :last_error,
    progress = :progress, progress_note = :progress_note, unknown_since = :unknown_since
WHERE id = :of_id
  AND version = :of_version
  AND jobs.group_key IS NULL
  AND (jobs.claim_token IS NULL OR jobs.available_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))));
