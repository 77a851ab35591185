-- stream_release_many_insert_jobs_2: the held jobs go back to the queue, several of them with a key
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.releases.release > spark.streams.store.releases.release_row >
--   dialects.sqlite.SQLite.update_returning
INSERT INTO jobs(id, queue, payload)
SELECT CAST(given . "key" AS BIGINT) AS id, '', ''
FROM json_each(:of_pairs) AS given
WHERE (
    SELECT found.version
    FROM jobs AS found
    WHERE found.id = CAST(given . "key" AS BIGINT)
) = given.value
ON CONFLICT (id) DO UPDATE
SET available_at = jobs.due_at,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts > :attempts_1) THEN jobs.attempts - :attempts_2 ELSE :param_1 END,
    claim_token = :param_2, worker = :param_3
RETURNING id;
