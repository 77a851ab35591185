-- fail_many: Queue.fail_many, another attempt follows, each with its own delay and error
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
SET available_at = ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + CASE jobs.id WHEN :param_1 THEN :param_2 WHEN :param_3 THEN :param_4 END),
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    claim_token = :param_5, worker = :param_6,
    last_error = CASE jobs.id WHEN :param_7 THEN :param_8 WHEN :param_9 THEN :param_10 END, progress = :param_11,
    progress_note = :param_12, unknown_since = :param_13
RETURNING id;
