-- complete_delete_mark_many: Queue.complete_many, removal="delete_mark"
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.settle.mark > dialects.sqlite.SQLite.update_returning
INSERT INTO jobs(id, queue, payload)
SELECT CAST(given . "key" AS BIGINT), '', ''
FROM json_each(:of_pairs) AS given
WHERE (
    SELECT held.version
    FROM jobs AS held
    WHERE held.id = CAST(given . "key" AS BIGINT)
) = given.value
ON CONFLICT (id) DO UPDATE
SET queue = :queue, delete_mark = 1,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    unique_key = NULL, group_key = NULL
RETURNING id;
