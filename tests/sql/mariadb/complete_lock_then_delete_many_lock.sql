-- Not sent to: mariadb_10.11
-- complete_lock_then_delete_many_lock: Queue.complete_many, removal="lock_then_delete"
-- Also: complete_delete_mark_many_lock, admit_many_lock_jobs, fail_many_lock, fail_many_one_error_lock,
--   fail_many_one_delay_lock, snooze_many_lock, interrupt_many_lock, retry_unknown_kinds_lock, bury_lock_jobs,
--   bury_many_lock_jobs, bury_exhausted_lock_jobs, extend_many_lock, extend_unlocked_lock_jobs,
--   adjust_attempts_many_lock, claim_unanswered_lock_jobs, stream_release_many_lock_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.lock > dialects.base.Dialect.hold
SELECT id, version
FROM jobs FORCE INDEX (PRIMARY)
WHERE id IN (:of_ids)
  AND (id, version) IN (:of_pairs)
ORDER BY id
FOR UPDATE;
