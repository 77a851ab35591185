-- admit_many_insert_jobs: the next jobs of several groups
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.groups.admit > store.groups._admit > dialects.sqlite.SQLite.update_returning
INSERT INTO jobs(id, queue, payload)
SELECT CAST(given . "key" AS BIGINT) AS id, '', ''
FROM json_each(:of_pairs) AS given
WHERE (
    SELECT found.version
    FROM jobs AS found
    WHERE found.id = CAST(given . "key" AS BIGINT)
) = given.value
ON CONFLICT (id) DO UPDATE
SET available_at = CASE WHEN (jobs.due_at > (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)) THEN jobs.due_at ELSE (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) END,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END
RETURNING id;
