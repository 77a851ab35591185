-- snooze_many: Queue.snooze_many and Queue.release_many
-- Also: claim_unanswered_insert_jobs
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
    attempts = CASE WHEN (jobs.attempts > :attempts_1) THEN jobs.attempts - :attempts_2 ELSE :param_2 END,
    claim_token = :param_3, worker = :param_4, progress = :param_5, progress_note = :param_6, unknown_since = :param_7
RETURNING id;
