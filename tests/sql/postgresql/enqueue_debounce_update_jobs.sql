-- enqueue_debounce_update_jobs: Queue.enqueue, on_duplicate="debounce", a live job has the key
-- Also: enqueue_debounce_held_update_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert > store.enqueue._replace
UPDATE jobs
SET kind = :kind, payload = :payload, headers = :headers, priority = :priority,
    available_at = CASE WHEN (jobs.available_at = :available_at_1) THEN :param_1 ELSE CASE WHEN (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :now_us_1 >= :param_2) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :now_us_2 ELSE :param_3 END END,
    due_at = CASE WHEN (jobs.available_at = :available_at_1) THEN CASE WHEN (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :now_us_1 >= :param_2) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + :now_us_2 ELSE :param_3 END END,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = :attempts, max_attempts = :max_attempts, claim_token = :claim_token, worker = :worker,
    created_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT), last_error = :last_error,
    progress = :progress, progress_note = :progress_note, unknown_since = :unknown_since
WHERE id = :of_id
  AND version = :of_version
  AND jobs.group_key IS NULL
  AND (jobs.claim_token IS NULL OR jobs.available_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT));
