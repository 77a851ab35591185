-- claim_unless_due: Queue.claim_unless: nothing while a job is due in another queue
-- Also: claim_fast_path_unless_due, claim_fast_path_unless_due_many, claim_skip_locked_unless_due,
--   claim_fast_path_skip_locked_unless_due, claim_fast_path_skip_locked_unless_due_many
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.claim > dialects.sqlite.SQLite.take
-- Always: delete_mark_1 = 0, param_1 = 0, delete_mark_2 = 0, param_2 = 1, param_3 = 0, param_4 = 1, param_5 = 0,
--   param_6 = 1, param_7 = 0, coalesce_1 = 2147483648, version_1 = 9223372036854775807, version_2 = 1, attempts_1 =
--   2147483647, attempts_2 = 1, param_8 = 2147483647
INSERT INTO jobs(id, queue, payload)
SELECT candidate.id, '', ''
FROM (
    SELECT range_0.id AS id, range_0.version AS version, range_0.priority AS priority,
        range_0.available_at AS available_at, range_0.head AS head
    FROM (
        SELECT jobs.id AS id, jobs.version AS version, jobs.priority AS priority, jobs.available_at AS available_at,
            jobs.available_at AS head
        FROM jobs
        WHERE jobs.queue = :in_queue
          AND jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
          AND jobs.delete_mark = :delete_mark_1
          AND jobs.priority = :priority_0
          AND jobs.available_at >= :floor_0
        ORDER BY jobs.available_at, jobs.id
        LIMIT :read
        OFFSET :param_1
    ) AS range_0
    WHERE (
        SELECT other.id
        FROM jobs AS other
        WHERE other.queue = :other_queue_0
          AND other.priority = :other_priority_0
          AND other.available_at >= :other_floor_0
          AND other.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
          AND other.delete_mark = :delete_mark_2
        ORDER BY other.available_at
        LIMIT :param_2
        OFFSET :param_3
    ) IS NULL
) AS candidate
WHERE candidate.priority < coalesce((
    SELECT min(unseen.priority) AS min_1
    FROM (
        SELECT gaps.priority AS priority
        FROM (
            SELECT gap_0.priority AS priority
            FROM (
                SELECT jobs.priority AS priority
                FROM jobs
                WHERE jobs.queue = :in_queue
                  AND jobs.priority < :priority_0
                ORDER BY jobs.priority DESC
                LIMIT :param_4
                OFFSET :param_5
            ) AS gap_0
            UNION ALL
            SELECT gap_1.priority AS priority
            FROM (
                SELECT jobs.priority AS priority
                FROM jobs
                WHERE jobs.queue = :in_queue
                  AND jobs.priority > :priority_0
                ORDER BY jobs.priority
                LIMIT :param_6
                OFFSET :param_7
            ) AS gap_1
        ) AS gaps
    ) AS unseen
), :coalesce_1)
ON CONFLICT (id) DO UPDATE
SET available_at = ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :lease),
    due_at = jobs.available_at,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts < :attempts_1) THEN jobs.attempts + :attempts_2 ELSE :param_8 END,
    claim_token = :token, worker = :by_worker, progress = NULL, progress_note = NULL,
    unknown_since = CASE WHEN (jobs.claim_token IS NULL) THEN jobs.unknown_since ELSE NULL END
RETURNING id, kind, payload, headers, priority, available_at, due_at, version, attempts, max_attempts, unique_key,
    created_at, last_error, group_key, callback_id;
