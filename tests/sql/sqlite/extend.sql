-- extend: LeasedJob.extend
-- Also: extend_unlocked_one
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.extend > dialects.sqlite.SQLite.update_returning >
--   dialects.base.ReturningDialect.update_returning
UPDATE jobs
SET available_at = (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :lease,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END
WHERE id = :of_id
  AND version = :of_version
RETURNING id, available_at;
