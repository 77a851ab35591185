-- enqueue_grouped_insert_jobs: Queue.enqueue with a group
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.seam.ClaimSeam.insert_new
INSERT INTO jobs(queue, kind, payload, headers, priority, available_at, max_attempts, unique_key, created_at,
    group_key, callback_id)
VALUES (:new_queue, :new_kind, :new_payload, :new_headers, :new_priority,
    CASE WHEN ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :new_after >= :new_not_before) THEN (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :new_after ELSE :new_not_before END,
    :new_max_attempts, :new_unique_key, (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    :new_group_key, :new_callback_id)
RETURNING id;
