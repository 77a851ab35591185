-- claim_any_priority: optimistic or adaptive, with more priorities in the queue than a process keeps marks of
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.claim > dialects.sqlite.SQLite.take
-- Always: delete_mark_1 = 0, param_1 = 0, version_1 = 9223372036854775807, version_2 = 1, attempts_1 = 2147483647,
--   attempts_2 = 1, param_2 = 2147483647
INSERT INTO jobs(id, queue, payload)
SELECT candidate.id, '', ''
FROM (
    SELECT range_all.id AS id, range_all.version AS version, range_all.priority AS priority,
        range_all.available_at AS available_at, range_all.head AS head
    FROM (
        SELECT jobs.id AS id, jobs.version AS version, jobs.priority AS priority, jobs.available_at AS available_at,
            jobs.available_at AS head
        FROM jobs
        WHERE jobs.queue = :in_queue
          AND jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
          AND jobs.delete_mark = :delete_mark_1
        ORDER BY jobs.priority, jobs.available_at, jobs.id
        LIMIT :read
        OFFSET :param_1
    ) AS range_all
) AS candidate
WHERE 1 = 1
ON CONFLICT (id) DO UPDATE
SET available_at = ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :lease),
    due_at = jobs.available_at,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts < :attempts_1) THEN jobs.attempts + :attempts_2 ELSE :param_2 END,
    claim_token = :token, worker = :by_worker, progress = NULL, progress_note = NULL,
    unknown_since = CASE WHEN (jobs.claim_token IS NULL) THEN jobs.unknown_since ELSE NULL END
RETURNING id, kind, payload, headers, priority, available_at, due_at, version, attempts, max_attempts, unique_key,
    created_at, last_error, group_key, callback_id;
