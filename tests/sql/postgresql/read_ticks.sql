-- read_ticks: Feed.read, ordering="ticks"
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.feeds.messages.read
-- Prepared once for each connection.
SELECT messages.seq, messages.kind, messages.payload, messages.headers, messages.message_key, messages.client,
    messages.created_at
FROM (
    SELECT numbered.id AS id, numbered.kind AS kind, numbered.payload AS payload, numbered.headers AS headers,
        numbered.message_key AS message_key, numbered.client AS client, numbered.created_at AS created_at,
        numbered.delay AS delay, numbered.lifetime AS lifetime, numbered.uid AS uid, numbered.seq AS seq,
        some_ticks.last_seq AS tick
    FROM (
        SELECT jobs_ticks.feed AS feed, jobs_ticks.first_seq AS first_seq, jobs_ticks.last_seq AS last_seq,
            jobs_ticks.low_id AS low_id, jobs_ticks.high_id AS high_id,
            CAST(jobs_ticks.snapshot AS txid_snapshot) AS snapshot,
            CAST(jobs_ticks.previous AS txid_snapshot) AS previous
        FROM jobs_ticks
        WHERE jobs_ticks.feed = :feed::BIGINT
          AND jobs_ticks.last_seq > :after::BIGINT
          AND jobs_ticks.first_seq <= greatest((
            SELECT first_tick.first_seq - 1 AS anon_1
            FROM jobs_ticks AS first_tick
            WHERE first_tick.feed = :feed::BIGINT
              AND first_tick.last_seq > :after::BIGINT
            ORDER BY first_tick.last_seq
            LIMIT 1
        ), :after::BIGINT) + :limit::INTEGER
          AND jobs_ticks.last_seq < greatest((
            SELECT first_tick.first_seq - 1 AS anon_1
            FROM jobs_ticks AS first_tick
            WHERE first_tick.feed = :feed::BIGINT
              AND first_tick.last_seq > :after::BIGINT
            ORDER BY first_tick.last_seq
            LIMIT 1
        ), :after::BIGINT) + :limit::INTEGER + 200
        ORDER BY jobs_ticks.last_seq
        LIMIT ALL
        OFFSET 0
    ) AS some_ticks
    JOIN LATERAL(
        SELECT jobs_ticked.id AS id, jobs_ticked.kind AS kind, jobs_ticked.payload AS payload,
            jobs_ticked.headers AS headers, jobs_ticked.message_key AS message_key, jobs_ticked.client AS client,
            jobs_ticked.created_at AS created_at, jobs_ticked.delay AS delay, jobs_ticked.lifetime AS lifetime,
            jobs_ticked.uid AS uid, (some_ticks.first_seq - 1) + row_number() OVER (ORDER BY jobs_ticked.id) AS seq
        FROM jobs_ticked
        WHERE jobs_ticked.feed = some_ticks.feed
          AND jobs_ticked.id >= some_ticks.low_id
          AND jobs_ticked.id <= some_ticks.high_id
          AND txid_visible_in_snapshot(jobs_ticked.xid, some_ticks.snapshot)
          AND NOT txid_visible_in_snapshot(jobs_ticked.xid, some_ticks.previous)
    ) AS numbered ON true
) AS messages
WHERE messages.seq > :after::BIGINT
ORDER BY messages.tick, messages.seq
LIMIT :limit::INTEGER;
