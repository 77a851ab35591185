-- complete_delete_mark_many: Queue.complete_many, removal="delete_mark"
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.settle.mark > dialects.sqlite.SQLite.update_returning
INSERT INTO jobs(id, queue, payload)
SELECT CAST(given . "key" AS BIGINT) AS id, '', ''
FROM json_each(:of_pairs) AS given
WHERE (
    SELECT found.version
    FROM jobs AS found
    WHERE found.id = CAST(given . "key" AS BIGINT)
) = given.value
ON CONFLICT (id) DO UPDATE
SET queue = :param_1,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    unique_key = :param_2, claim_token = :param_3, delete_mark = :param_4, group_key = :param_5
RETURNING id;
