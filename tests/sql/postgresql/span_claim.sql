-- span_claim: SharedCursor.claim: the next messages
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.feeds.spans.hand_out
-- Prepared once for each connection.
WITH held AS (
    SELECT jobs_cursors.feed AS feed, jobs_cursors.name AS name, jobs_cursors.handed AS handed,
        jobs_cursors.version AS version
    FROM jobs_cursors
    WHERE jobs_cursors.feed = :of::BIGINT
      AND jobs_cursors.name = :called::VARCHAR
      AND jobs_cursors.handed IS NOT NULL
    FOR UPDATE
), moved AS (
    UPDATE jobs_cursors
    SET seen_at = CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT),
        handed = least((greatest(held.handed + 1, :first::BIGINT) + :most::BIGINT) - 1, :next::BIGINT - 1)
    FROM held
    WHERE jobs_cursors.feed = held.feed
      AND jobs_cursors.name = held.name
      AND greatest(held.handed + 1, :first::BIGINT) <= :next::BIGINT - 1
    RETURNING jobs_cursors.feed, jobs_cursors.name, greatest(held.handed + 1, :first::BIGINT) AS low,
        jobs_cursors.handed AS high, held.version,
        (greatest(held.handed + 1, :first::BIGINT) - held.handed) - 1 AS skipped
), made AS (
    INSERT INTO jobs_spans(feed, cursor_name, low, high, version, attempts, worker, until)
    SELECT moved.feed AS feed, moved.name AS name, moved.low AS low, moved.high AS high, moved.version AS version,
        1 AS anon_1, :consumer::VARCHAR AS anon_2,
        CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) + :lease::BIGINT AS anon_3
    FROM moved
    RETURNING jobs_spans.id, jobs_spans.low, jobs_spans.high, jobs_spans.version, jobs_spans.attempts
)
SELECT made.id, made.low, made.high, made.version, made.attempts, moved.skipped
FROM made
JOIN moved ON true;
