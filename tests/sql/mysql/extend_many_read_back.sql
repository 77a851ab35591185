-- extend_many_read_back: Queue.extend_many
-- Also: extend_unlocked_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend > dialects.base.Dialect.update_returning
SELECT id, available_at
FROM jobs FORCE INDEX (PRIMARY)
WHERE id IN (:of_ids)
  AND (id, version) IN (:of_pairs);
