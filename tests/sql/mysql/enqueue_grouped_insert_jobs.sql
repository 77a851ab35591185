-- enqueue_grouped_insert_jobs: Queue.enqueue with a group
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.seam.ClaimSeam.insert_new
INSERT INTO jobs(queue, kind, payload, headers, priority, available_at, max_attempts, unique_key, created_at,
    group_key, callback_id)
VALUES (:new_queue, :new_kind, :new_payload, :new_headers, :new_priority, CASE WHEN ((TIMESTAMPDIFF(MICROSECOND,
    '1970-01-01', UTC_TIMESTAMP(6))) + :new_after >= :new_not_before) THEN (TIMESTAMPDIFF(MICROSECOND, '1970-01-01',
    UTC_TIMESTAMP(6))) + :new_after ELSE :new_not_before END, :new_max_attempts, :new_unique_key,
    (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))), :new_group_key, :new_callback_id);
