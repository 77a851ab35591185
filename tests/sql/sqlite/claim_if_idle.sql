-- claim_if_idle: Queue.claim_if_idle: nothing while a job is due in another queue
-- Also: claim_fast_path_if_idle, claim_fast_path_if_idle_many, claim_skip_locked_if_idle,
--   claim_fast_path_skip_locked_if_idle, claim_fast_path_skip_locked_if_idle_many
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.lease.claim > dialects.sqlite.SQLite.execute_claim
INSERT INTO jobs AS jobs(id, queue, payload)
SELECT candidate.id, '', ''
FROM (
    SELECT *
    FROM (
        SELECT jobs.id, jobs.version, jobs.priority, jobs.available_at, jobs.available_at AS head
        FROM jobs AS jobs
        WHERE jobs.queue = :in_queue
          AND jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
          AND jobs.delete_mark = 0
          AND jobs.priority = :priority_0
          AND jobs.available_at >= :floor_0
        ORDER BY jobs.available_at, jobs.id
        LIMIT :read
    ) AS due_0
    WHERE (
        SELECT other.id
        FROM jobs AS other
        WHERE other.queue = :other_queue_0
          AND other.priority = :other_priority_0
          AND other.available_at >= :other_floor_0
          AND other.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
          AND other.delete_mark = 0
        ORDER BY other.available_at
        LIMIT 1
    ) IS NULL
) AS candidate
WHERE candidate.priority < coalesce((
    SELECT min(unseen.priority)
    FROM (
        SELECT gap_0.priority
        FROM (
            SELECT jobs.priority
            FROM jobs AS jobs
            WHERE jobs.queue = :in_queue
              AND jobs.priority < :priority_0
            ORDER BY jobs.priority DESC
            LIMIT 1
        ) AS gap_0
        UNION ALL
        SELECT gap_1.priority
        FROM (
            SELECT jobs.priority
            FROM jobs AS jobs
            WHERE jobs.queue = :in_queue
              AND jobs.priority > :priority_0
            ORDER BY jobs.priority
            LIMIT 1
        ) AS gap_1
    ) AS unseen
), 2147483648)
ON CONFLICT (id) DO UPDATE
SET due_at = jobs.available_at,
    available_at = (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :lease,
    version = CASE WHEN jobs.version < 9223372036854775807 THEN jobs.version + 1 ELSE jobs.version END,
    attempts = CASE WHEN jobs.attempts < 2147483647 THEN jobs.attempts + 1 ELSE 2147483647 END,
    unknown_since = CASE WHEN jobs.claim_token IS NULL THEN jobs.unknown_since ELSE NULL END, claim_token = :token,
    worker = :by_worker, progress = NULL, progress_note = NULL, padding = NULL
RETURNING id, kind, payload, headers, priority, available_at, due_at, version, attempts, max_attempts, unique_key,
    created_at, last_error, group_key, callback_id;
