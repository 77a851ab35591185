-- interrupt_many: the stop of a worker interrupts several attempts, which do not count
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.requeue > dialects.sqlite.SQLite.update_returning
INSERT INTO jobs(id, queue, payload)
SELECT CAST(given . "key" AS BIGINT), '', ''
FROM json_each(:of_pairs) AS given
WHERE (
    SELECT held.version
    FROM jobs AS held
    WHERE held.id = CAST(given . "key" AS BIGINT)
) = given.value
ON CONFLICT (id) DO UPDATE
SET available_at = (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :delay,
    version = CASE WHEN version < 9223372036854775807 THEN version + 1 ELSE version END, claim_token = NULL,
    worker = NULL, progress = NULL, progress_note = NULL, unknown_since = NULL,
    attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END,
    headers = CASE id WHEN :of_id_0 THEN :headers_0 WHEN :of_id_1 THEN :headers_1 END
RETURNING id;
