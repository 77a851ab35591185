-- admit_many_insert_jobs: the next jobs of several groups
-- Transaction: within BEGIN … COMMIT
-- Sent by: groups.store.groups.admit > groups.store.groups._admit > dialects.sqlite.SQLite.update_returning
INSERT INTO jobs(id, queue, payload)
SELECT CAST(given . "key" AS BIGINT), '', ''
FROM json_each(:of_pairs) AS given
WHERE (
    SELECT held.version
    FROM jobs AS held
    WHERE held.id = CAST(given . "key" AS BIGINT)
) = given.value
ON CONFLICT (id) DO UPDATE
SET available_at = CASE WHEN due_at > (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) THEN due_at ELSE (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) END,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END
RETURNING id;
