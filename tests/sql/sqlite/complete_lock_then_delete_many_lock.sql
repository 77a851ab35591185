-- complete_lock_then_delete_many_lock: Queue.complete_many, removal="lock_then_delete"
-- Also: bury_select_json_each, bury_many_select_json_each, bury_exhausted_select_json_each
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.lock > dialects.sqlite.SQLite.hold
SELECT CAST(given . "key" AS BIGINT), given.value
FROM json_each(:of_pairs) AS given
WHERE (
    SELECT held.version
    FROM jobs AS held
    WHERE held.id = CAST(given . "key" AS BIGINT)
) = given.value;
