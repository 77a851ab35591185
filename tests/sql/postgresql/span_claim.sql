-- span_claim: SharedCursor.claim: the next messages
-- Transaction: none has begun, the statement commits by itself
-- Sent by: feeds.store.span_claims.claim
-- Prepared once for each connection.
WITH state AS (
    SELECT jobs_feeds.next_seq AS next_seq, jobs_feeds.first_seq AS first_seq, jobs_feeds.epoch AS epoch,
        jobs_cursors.handed AS handed, CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now,
        EXISTS(
        SELECT jobs_spans.id
        FROM jobs_spans
        WHERE jobs_spans.feed = :of::BIGINT
          AND jobs_spans.cursor_name = :called::VARCHAR
          AND jobs_spans.until <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)
    ) AS expired, EXISTS(
        SELECT jobs_inbox.id
        FROM jobs_inbox
        WHERE jobs_inbox.feed = :of::BIGINT
    ) AS waiting
    FROM jobs_cursors
    JOIN jobs_feeds ON jobs_feeds.id = jobs_cursors.feed
    WHERE jobs_cursors.feed = :of::BIGINT
      AND jobs_cursors.name = :called::VARCHAR
), held AS (
    SELECT jobs_cursors.feed AS feed, jobs_cursors.name AS name, jobs_cursors.handed AS handed,
        jobs_cursors.version AS version, greatest(jobs_cursors.handed + 1, state.first_seq) AS low,
        state.next_seq AS next_seq
    FROM jobs_cursors
    JOIN state ON true
    WHERE jobs_cursors.feed = :of::BIGINT
      AND jobs_cursors.name = :called::VARCHAR
      AND state.next_seq - greatest(jobs_cursors.handed + 1, state.first_seq) > 0
      AND (NOT state.expired OR :late)
      AND (state.first_seq <= jobs_cursors.handed + 1 OR :skip)
      AND (state.next_seq - greatest(jobs_cursors.handed + 1, state.first_seq) >= :least::BIGINT OR NOT state.waiting)
    FOR UPDATE
), moved AS (
    UPDATE jobs_cursors
    SET seen_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT),
        handed = (least(held.low + :most::BIGINT, held.next_seq) - 1)
    FROM held
    WHERE jobs_cursors.feed = held.feed
      AND jobs_cursors.name = held.name
    RETURNING jobs_cursors.feed, jobs_cursors.name, held.low, jobs_cursors.handed AS high, held.version,
        (held.low - held.handed) - 1 AS skipped
), made AS (
    INSERT INTO jobs_spans(feed, cursor_name, low, high, version, attempts, worker, until)
    SELECT moved.feed AS feed, moved.name AS name, moved.low AS low, moved.high AS high,
        moved.version + CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) AS anon_1, 1 AS anon_2,
        :worker::VARCHAR AS anon_3,
        CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) + :lease::BIGINT AS anon_4
    FROM moved
    WHERE set_config('synchronous_commit', 'off', true) <> ''
    RETURNING jobs_spans.id, jobs_spans.low, jobs_spans.high, jobs_spans.version, jobs_spans.attempts
)
SELECT NULL AS seq, NULL AS kind,
    CAST(json_build_array(state.next_seq, state.first_seq, state.epoch, state.handed, state.now, state.expired, state.waiting, made.id, made.low, made.high, made.version, made.attempts, moved.skipped) AS TEXT) AS payload,
    NULL AS headers, NULL AS message_key, NULL AS client, NULL AS created_at
FROM state
LEFT OUTER JOIN made ON true
LEFT OUTER JOIN moved ON true
UNION ALL
SELECT page.seq, page.kind, page.payload, page.headers, page.message_key, page.client, page.created_at
FROM made
JOIN LATERAL(
    SELECT jobs_messages.seq AS seq, jobs_messages.kind AS kind, jobs_messages.payload AS payload,
        jobs_messages.headers AS headers, jobs_messages.message_key AS message_key, jobs_messages.client AS client,
        jobs_messages.created_at AS created_at
    FROM jobs_messages
    WHERE jobs_messages.feed = :of::BIGINT
      AND jobs_messages.seq >= made.low
      AND jobs_messages.seq <= made.high
    ORDER BY jobs_messages.seq
    LIMIT :most::INTEGER
) AS page ON true;
