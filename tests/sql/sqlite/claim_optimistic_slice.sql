-- claim_optimistic_slice: optimistic or adaptive, at a place in the window
-- Also: claim_fast_path_slice, claim_fast_path_slice_many, pop_fast_path_slice_claim, pop_fast_path_slice_many_claim,
--   complete_and_claim_slice_claim, complete_and_claim_slice_many_claim
-- Transaction: none has begun, the statement commits by itself; or within BEGIN … COMMIT
-- Sent by: store.lease.claim > dialects.sqlite.SQLite.execute_claim
INSERT INTO jobs AS jobs(id, queue, payload)
SELECT candidate.id, '', ''
FROM (
    SELECT *
    FROM (
        SELECT *
        FROM (
            SELECT jobs.id, jobs.version, jobs.priority, jobs.available_at, (
                SELECT jobs.available_at
                FROM jobs AS jobs
                WHERE jobs.queue = :in_queue
                  AND jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
                  AND jobs.delete_mark = 0
                  AND jobs.priority = :priority_0
                  AND jobs.available_at >= :floor_0
                ORDER BY jobs.available_at, jobs.id
                LIMIT 1
            ) AS head
            FROM jobs AS jobs
            WHERE jobs.queue = :in_queue
              AND jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
              AND jobs.delete_mark = 0
              AND jobs.priority = :priority_0
              AND jobs.available_at >= :floor_0
            ORDER BY jobs.available_at, jobs.id
            LIMIT :read
        ) AS due_0
        LIMIT :limit
        OFFSET :start
    ) AS slice
    UNION ALL
    SELECT *
    FROM (
        SELECT *
        FROM (
            SELECT jobs.id, jobs.version, jobs.priority, jobs.available_at, (
                SELECT jobs.available_at
                FROM jobs AS jobs
                WHERE jobs.queue = :in_queue
                  AND jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
                  AND jobs.delete_mark = 0
                  AND jobs.priority = :priority_0
                  AND jobs.available_at >= :floor_0
                ORDER BY jobs.available_at, jobs.id
                LIMIT 1
            ) AS head
            FROM jobs AS jobs
            WHERE jobs.queue = :in_queue
              AND jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
              AND jobs.delete_mark = 0
              AND jobs.priority = :priority_0
              AND jobs.available_at >= :floor_0
            ORDER BY jobs.available_at, jobs.id
            LIMIT :read
        ) AS front_due_0
        LIMIT :front
    ) AS front
    LIMIT :limit
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
