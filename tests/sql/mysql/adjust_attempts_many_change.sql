-- adjust_attempts_many_change: Queue.adjust_attempts
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.adjust_attempts
UPDATE jobs FORCE INDEX (PRIMARY)
SET version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END,
    attempts = CASE WHEN attempts + :attempts > 0 THEN attempts + :attempts ELSE 0 END
WHERE id IN (:of_ids)
  AND (id, version) IN (:of_pairs);
