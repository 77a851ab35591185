-- extend_many_read_back: Queue.extend_many
-- Also: extend_unlocked_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend > dialects.seam.ClaimSeam.update_returning
SELECT jobs.id, jobs.available_at
FROM jobs FORCE INDEX (PRIMARY)
WHERE jobs.id IN (:of_ids)
  AND (jobs.id, jobs.version) IN (:of_pairs);
