-- enqueue_debounce_held_update_jobs: Queue.enqueue, on_duplicate="debounce", a worker holds the live job that has the
--   key
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert > store.enqueue._replace
UPDATE jobs
SET unique_key = :unique_key
WHERE id = :of_id
  AND version = :of_version
  AND jobs.group_key IS NULL
  AND NOT (jobs.claim_token IS NULL OR jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000));
