-- stream_release_many_insert_jobs_2: the held jobs go back to the queue, several of them with a key
-- Transaction: within BEGIN … COMMIT
-- Sent by: spark.streams.store.releases.release > spark.streams.store.releases.release_row >
--   dialects.sqlite.SQLite.update_returning
INSERT INTO jobs(id, queue, payload)
SELECT CAST(given . "key" AS BIGINT), '', ''
FROM json_each(:of_pairs) AS given
WHERE (
    SELECT held.version
    FROM jobs AS held
    WHERE held.id = CAST(given . "key" AS BIGINT)
) = given.value
ON CONFLICT (id) DO UPDATE
SET available_at = due_at, version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END,
    claim_token = NULL, worker = NULL, attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END
RETURNING id;
