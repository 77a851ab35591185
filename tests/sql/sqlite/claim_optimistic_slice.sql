-- claim_optimistic_slice: optimistic or adaptive, at a place in the window
-- Also: claim_fast_path_slice, claim_fast_path_slice_many, pop_fast_path_slice_claim, pop_fast_path_slice_many_claim,
--   exchange_slice_claim, exchange_slice_many_claim
-- Transaction: none has begun, the statement commits by itself; or within BEGIN … COMMIT
-- Sent by: store.lease.claim > dialects.sqlite.SQLite.take
-- Always: delete_mark_1 = 0, param_1 = 1, param_2 = 0, param_3 = 0, delete_mark_2 = 0, param_4 = 1, param_5 = 0,
--   param_6 = 0, param_7 = 0, param_8 = 0, param_9 = 1, param_10 = 0, param_11 = 1, param_12 = 0, coalesce_1 =
--   2147483648, version_1 = 9223372036854775807, version_2 = 1, attempts_1 = 2147483647, attempts_2 = 1, param_13 =
--   2147483647
INSERT INTO jobs(id, queue, payload)
SELECT candidate.id, '', ''
FROM (
    SELECT drawn.id AS id, drawn.version AS version, drawn.priority AS priority, drawn.available_at AS available_at,
        drawn.head AS head
    FROM (
        SELECT slice.id AS id, slice.version AS version, slice.priority AS priority,
            slice.available_at AS available_at, slice.head AS head
        FROM (
            SELECT range_0.id AS id, range_0.version AS version, range_0.priority AS priority,
                range_0.available_at AS available_at, range_0.head AS head
            FROM (
                SELECT jobs.id AS id, jobs.version AS version, jobs.priority AS priority,
                    jobs.available_at AS available_at, (
                    SELECT jobs.available_at
                    FROM jobs
                    WHERE jobs.queue = :in_queue
                      AND jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
                      AND jobs.delete_mark = :delete_mark_1
                      AND jobs.priority = :priority_0
                      AND jobs.available_at >= :floor_0
                    ORDER BY jobs.available_at, jobs.id
                    LIMIT :param_1
                    OFFSET :param_2
                ) AS head
                FROM jobs
                WHERE jobs.queue = :in_queue
                  AND jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
                  AND jobs.delete_mark = :delete_mark_1
                  AND jobs.priority = :priority_0
                  AND jobs.available_at >= :floor_0
                ORDER BY jobs.available_at, jobs.id
                LIMIT :read
                OFFSET :param_3
            ) AS range_0
            LIMIT :limit
            OFFSET :start
        ) AS slice
        UNION ALL
        SELECT head.id AS id, head.version AS version, head.priority AS priority, head.available_at AS available_at,
            head.head AS head
        FROM (
            SELECT front_0.id AS id, front_0.version AS version, front_0.priority AS priority,
                front_0.available_at AS available_at, front_0.head AS head
            FROM (
                SELECT jobs.id AS id, jobs.version AS version, jobs.priority AS priority,
                    jobs.available_at AS available_at, (
                    SELECT jobs.available_at
                    FROM jobs
                    WHERE jobs.queue = :in_queue
                      AND jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
                      AND jobs.delete_mark = :delete_mark_2
                      AND jobs.priority = :priority_0
                      AND jobs.available_at >= :floor_0
                    ORDER BY jobs.available_at, jobs.id
                    LIMIT :param_4
                    OFFSET :param_5
                ) AS head
                FROM jobs
                WHERE jobs.queue = :in_queue
                  AND jobs.available_at <= (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
                  AND jobs.delete_mark = :delete_mark_2
                  AND jobs.priority = :priority_0
                  AND jobs.available_at >= :floor_0
                ORDER BY jobs.available_at, jobs.id
                LIMIT :read
                OFFSET :param_6
            ) AS front_0
            LIMIT :front
            OFFSET :param_7
        ) AS head
        LIMIT :limit
        OFFSET :param_8
    ) AS drawn
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
                LIMIT :param_9
                OFFSET :param_10
            ) AS gap_0
            UNION ALL
            SELECT gap_1.priority AS priority
            FROM (
                SELECT jobs.priority AS priority
                FROM jobs
                WHERE jobs.queue = :in_queue
                  AND jobs.priority > :priority_0
                ORDER BY jobs.priority
                LIMIT :param_11
                OFFSET :param_12
            ) AS gap_1
        ) AS gaps
    ) AS unseen
), :coalesce_1)
ON CONFLICT (id) DO UPDATE
SET available_at = ((CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) + :lease),
    due_at = jobs.available_at,
    version = CASE WHEN (jobs.version < :version_1) THEN jobs.version + :version_2 ELSE jobs.version END,
    attempts = CASE WHEN (jobs.attempts < :attempts_1) THEN jobs.attempts + :attempts_2 ELSE :param_13 END,
    claim_token = :token, worker = :by_worker, progress = NULL, progress_note = NULL,
    unknown_since = CASE WHEN (jobs.claim_token IS NULL) THEN jobs.unknown_since ELSE NULL END
RETURNING id, kind, payload, headers, priority, available_at, due_at, version, attempts, max_attempts, unique_key,
    created_at, last_error, group_key, callback_id;
