-- recount_many: Queue.recount
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.recount > dialects.sqlite.SQLite.update_returning
INSERT INTO jobs(id, queue, payload)
SELECT CAST(given . "key" AS BIGINT) AS id, '', ''
FROM json_each(:of_pairs) AS given
WHERE (
    SELECT found.version
    FROM jobs AS found
    WHERE found.id = CAST(given . "key" AS BIGINT)
) = given.value
ON CONFLICT (id) DO UPDATE
SET version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts + :attempts_1 > :param_1) THEN jobs.attempts + :attempts_2 ELSE :param_2 END
RETURNING id;
