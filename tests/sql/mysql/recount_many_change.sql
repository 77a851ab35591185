-- recount_many_change: Queue.recount
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.recount
UPDATE jobs FORCE INDEX (PRIMARY)
SET version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts + :attempts_1 > :param_1) THEN jobs.attempts + :attempts_2 ELSE :param_2 END
WHERE jobs.id IN (:of_ids)
  AND (jobs.id, jobs.version) IN (:of_pairs);
