-- complete_grouped_select_jobs: a job of a group and of a batch leaves: the next of its group is admitted, the batch
--   counts down
-- Also: stream_complete_keyed_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.on_leave.delete > store.on_leave.read_links
SELECT jobs.id, jobs.queue, jobs.group_key, jobs.callback_id, jobs.available_at
FROM jobs
WHERE jobs.id IN (:id_1)
  AND (jobs.group_key IS NOT NULL OR jobs.callback_id IS NOT NULL);
