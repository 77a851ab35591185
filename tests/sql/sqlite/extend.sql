-- extend: LeasedJob.extend
-- Also: extend_unlocked_one
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend > dialects.sqlite.SQLite.update_returning >
--   dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :now_us_1),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END
WHERE jobs.id = :of_id
  AND jobs.version = :of_version
RETURNING id, available_at;
