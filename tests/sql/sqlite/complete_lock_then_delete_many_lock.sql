-- complete_lock_then_delete_many_lock: Queue.complete_many, removal="lock_then_delete"
-- Also: bury_select_jobs, bury_many_select_jobs, bury_exhausted_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.lock > dialects.sqlite.SQLite.hold
SELECT jobs.id, jobs.version
FROM jobs
WHERE jobs.id IN (:of_ids)
  AND (jobs.id, jobs.version) IN (VALUES (:of_pairs));
