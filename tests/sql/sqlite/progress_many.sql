-- progress_many: LeasedJob.progress, written by the worker for many jobs at once
-- Transaction: within BEGIN … COMMIT
-- Sent by: verbs.progress.write_progress
UPDATE jobs
SET progress = CASE jobs.id WHEN :param_1 THEN :param_2 WHEN :param_3 THEN :param_4 END,
    progress_note = CASE jobs.id WHEN :param_5 THEN :param_6 WHEN :param_7 THEN :param_8 END
WHERE id IN (:of_ids)
  AND (id, version) IN (VALUES (:of_pairs));
