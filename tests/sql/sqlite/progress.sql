-- progress: LeasedJob.progress
-- Transaction: within BEGIN … COMMIT
-- Sent by: verbs.progress.write_progress
UPDATE jobs
SET progress = :progress, progress_note = :progress_note
WHERE id = :of_id
  AND version = :of_version;
