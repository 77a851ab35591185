-- enqueue: Queue.enqueue; without a transaction, if the connection is in use
-- Also: enqueue_notify, enqueue_unique_for_insert_jobs, complete_grouped_insert_jobs
-- Transaction: none has begun, the statement commits by itself; or within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > dialects.inserts.Inserts.insert_new
INSERT INTO jobs(queue, kind, payload, headers, priority, max_attempts, unique_key, available_at, created_at)
VALUES (:new_queue, :new_kind, :new_payload, :new_headers, :new_priority, :new_max_attempts, :new_unique_key,
    CASE WHEN (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :new_after >= :new_not_before THEN (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :new_after ELSE :new_not_before END,
    (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000))
RETURNING id;
