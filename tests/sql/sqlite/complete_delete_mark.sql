-- complete_delete_mark: LeasedJob.complete, removal="delete_mark"
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.settle.mark > dialects.sqlite.SQLite.update_returning >
--   dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET queue = :queue, delete_mark = 1,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    unique_key = NULL, group_key = NULL
WHERE id = :of_id
  AND version = :of_version
RETURNING id;
