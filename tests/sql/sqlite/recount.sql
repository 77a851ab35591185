-- recount: Queue.recount, one job
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.recount > dialects.sqlite.SQLite.update_returning >
--   dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts + :attempts_1 > :param_1) THEN jobs.attempts + :attempts_2 ELSE :param_2 END
WHERE jobs.id = :of_id
  AND jobs.version = :of_version
RETURNING id;
