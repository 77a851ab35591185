-- enqueue: Queue.enqueue; on PostgreSQL without a transaction, if the connection is in use
-- Also: enqueue_notify, enqueue_unique_for_insert_jobs, complete_grouped_insert_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.seam.ClaimSeam.insert_new > dialects.mysql.MySQL.bulk_load
INSERT INTO jobs(queue, kind, payload, headers, priority, available_at, max_attempts, unique_key, created_at)
VALUES (:queue, :kind, :payload, :headers, :priority, CASE WHEN ((TIMESTAMPDIFF(MICROSECOND, '1970-01-01',
    UTC_TIMESTAMP(6))) + :now_us_1 >= :param_1) THEN (TIMESTAMPDIFF(MICROSECOND, '1970-01-01',
    UTC_TIMESTAMP(6))) + :now_us_2 ELSE :param_2 END, :max_attempts, :unique_key, (TIMESTAMPDIFF(MICROSECOND,
    '1970-01-01', UTC_TIMESTAMP(6))));
