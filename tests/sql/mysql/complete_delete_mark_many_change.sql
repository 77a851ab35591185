-- complete_delete_mark_many_change: Queue.complete_many, removal="delete_mark"
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.mark
UPDATE jobs FORCE INDEX (PRIMARY)
SET queue = :queue, delete_mark = 1,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    unique_key = NULL, group_key = NULL
WHERE id IN (:of_ids)
  AND (id, version) IN (:of_pairs);
