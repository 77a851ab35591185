-- complete_delete_mark_many_change: Queue.complete_many, removal="delete_mark"
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.mark
UPDATE jobs FORCE INDEX (PRIMARY)
SET queue = :queue,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    unique_key = :unique_key, claim_token = :claim_token, delete_mark = :delete_mark, group_key = :group_key
WHERE jobs.id IN (:of_ids)
  AND (jobs.id, jobs.version) IN (:of_pairs);
