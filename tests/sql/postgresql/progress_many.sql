-- progress_many: LeasedJob.progress, written by the worker for many jobs at once
-- Transaction: within BEGIN … COMMIT
-- Sent by: verbs.progress.write_progress
UPDATE jobs
SET progress = CASE jobs.id WHEN :param_1 THEN :param_2 WHEN :param_3 THEN :param_4 END,
    progress_note = CASE jobs.id WHEN :param_5 THEN :param_6 WHEN :param_7 THEN :param_8 END
WHERE jobs.id = ANY(:param_9::BIGINT[])
  AND ((jobs.id, jobs.version) IN (
    SELECT wanted.id, wanted.version
    FROM unnest(:param_9::BIGINT[], :param_10::BIGINT[]) AS wanted(id, version)
)) IS true;
