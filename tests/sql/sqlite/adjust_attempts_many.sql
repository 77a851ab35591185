-- adjust_attempts_many: Queue.adjust_attempts
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.adjust_attempts > dialects.sqlite.SQLite.update_returning
INSERT INTO jobs(id, queue, payload)
SELECT CAST(given . "key" AS BIGINT), '', ''
FROM json_each(:of_pairs) AS given
WHERE (
    SELECT held.version
    FROM jobs AS held
    WHERE held.id = CAST(given . "key" AS BIGINT)
) = given.value
ON CONFLICT (id) DO UPDATE
SET version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END,
    attempts = CASE WHEN attempts + :attempts > 0 THEN attempts + :attempts ELSE 0 END
RETURNING id;
