-- enqueue_grouped_insert_jobs: Queue.enqueue with a group
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.inserts.Inserts.insert_new
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, group_key, callback_id,
    available_at, created_at)
VALUES (:new_queue, :new_kind, :new_payload, :new_headers, :new_priority, :new_max_attempts, :new_unique_key,
    :new_group_key, :new_callback_id,
    CASE WHEN (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :new_after >= :new_not_before THEN (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) + :new_after ELSE :new_not_before END,
    (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))));
