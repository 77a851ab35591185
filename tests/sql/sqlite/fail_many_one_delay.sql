-- fail_many_one_delay: Queue.fail_many, another attempt follows, one delay and one error for all
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.free > dialects.sqlite.SQLite.update_returning
INSERT INTO jobs(id, queue, payload)
SELECT CAST(given . "key" AS BIGINT) AS id, '', ''
FROM json_each(:of_pairs) AS given
WHERE (
    SELECT found.version
    FROM jobs AS found
    WHERE found.id = CAST(given . "key" AS BIGINT)
) = given.value
ON CONFLICT (id) DO UPDATE
SET available_at = ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :param_1),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    claim_token = :param_2, worker = :param_3, last_error = :param_4, progress = :param_5, progress_note = :param_6,
    unknown_since = :param_7
RETURNING id;
