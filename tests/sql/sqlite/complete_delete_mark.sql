-- complete_delete_mark: LeasedJob.complete, removal="delete_mark"
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.settle.mark > dialects.sqlite.SQLite.update_returning >
--   dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET queue = :queue,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    unique_key = :unique_key, claim_token = :claim_token, delete_mark = :delete_mark, group_key = :group_key
WHERE jobs.id = :of_id
  AND jobs.version = :of_version
RETURNING id;
