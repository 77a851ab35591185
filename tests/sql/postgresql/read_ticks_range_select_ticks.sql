-- read_ticks_range_select_ticks: Span.messages and Spark: numbers between two
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.feeds.ranges.page > store.ranges.rows_of
SELECT messages.seq, messages.payload
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
        WHERE jobs_ticks.feed = :feed_1
          AND jobs_ticks.last_seq > :last_seq_1
          AND jobs_ticks.first_seq <= :first_seq_1
          AND jobs_ticks.last_seq < :last_seq_2
          AND jobs_ticks.first_seq <= greatest((
            SELECT first_tick.first_seq - :first_seq_2 AS anon_1
            FROM jobs_ticks AS first_tick
            WHERE first_tick.feed = :feed_2
              AND first_tick.last_seq > :last_seq_3
            ORDER BY first_tick.last_seq
            LIMIT :param_1
        ), :greatest_1) + :greatest_2
          AND jobs_ticks.last_seq < greatest((
            SELECT first_tick.first_seq - :first_seq_2 AS anon_1
            FROM jobs_ticks AS first_tick
            WHERE first_tick.feed = :feed_2
              AND first_tick.last_seq > :last_seq_3
            ORDER BY first_tick.last_seq
            LIMIT :param_1
        ), :greatest_1) + :greatest_2 + :param_2
        ORDER BY jobs_ticks.last_seq
        LIMIT ALL
        OFFSET 0
    ) AS some_ticks
    JOIN LATERAL(
        SELECT jobs_ticked.id AS id, jobs_ticked.kind AS kind, jobs_ticked.payload AS payload,
            jobs_ticked.headers AS headers, jobs_ticked.message_key AS message_key, jobs_ticked.client AS client,
            jobs_ticked.created_at AS created_at, jobs_ticked.delay AS delay, jobs_ticked.lifetime AS lifetime,
            jobs_ticked.uid AS uid,
            (some_ticks.first_seq - :first_seq_3) + row_number() OVER (ORDER BY jobs_ticked.id) AS seq
        FROM jobs_ticked
        WHERE jobs_ticked.feed = some_ticks.feed
          AND jobs_ticked.id >= some_ticks.low_id
          AND jobs_ticked.id <= some_ticks.high_id
          AND txid_visible_in_snapshot(jobs_ticked.xid, some_ticks.snapshot)
          AND NOT txid_visible_in_snapshot(jobs_ticked.xid, some_ticks.previous)
    ) AS numbered ON true
) AS messages
WHERE messages.seq > :seq_1
  AND messages.seq <= :seq_2
ORDER BY messages.tick, messages.seq
LIMIT :param_3;
