-- enqueue_many_grouped_update_jobs: Queue.enqueue_many with groups, delayed: the due times of jobs that wait are kept
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > groups.store.dependents.Entry.inserted >
--   groups.store.groups.remember_due
UPDATE jobs
SET due_at = CASE
    WHEN (CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + CASE jobs.id WHEN :param_1 THEN :param_2 WHEN :param_3 THEN :param_4 END >= :param_5)
    THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + CASE jobs.id WHEN :param_1
    THEN :param_2 WHEN :param_3 THEN :param_4 END ELSE :param_5 END
WHERE jobs.id IN (:id_1)
  AND jobs.available_at = :available_at_1;
