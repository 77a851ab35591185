-- rank_with_inbox: a publisher, a reader or a worker numbers the messages of an inbox
-- Also: rank_with_claims_with_inbox
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.ranking.rank > feeds.dialects.postgresql.PostgreSQLForFeeds.move_numbered
-- Prepared once for each connection.
WITH waiting AS (
    SELECT jobs_inbox.id AS id, octet_length(jobs_inbox.payload) AS size
    FROM jobs_inbox
    WHERE jobs_inbox.feed = :of_feed::BIGINT
    ORDER BY jobs_inbox.id
    LIMIT :most::INTEGER
), moved AS (
    DELETE FROM jobs_inbox
    WHERE jobs_inbox.id = ANY(array((
        SELECT sizes.id
        FROM (
            SELECT waiting.id AS id, waiting.size AS size,
                sum(waiting.size) OVER (ORDER BY waiting.id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto
            FROM waiting
        ) AS sizes
        WHERE sizes.upto <= :largest::BIGINT OR sizes.upto = sizes.size
    )))
    RETURNING jobs_inbox.id, jobs_inbox.feed, jobs_inbox.kind, jobs_inbox.payload, jobs_inbox.headers,
        jobs_inbox.message_key, jobs_inbox.client, jobs_inbox.delay, jobs_inbox.lifetime, jobs_inbox.uid,
        jobs_inbox.created_at
), made AS (
    INSERT INTO jobs_messages(feed, seq, kind, payload, headers, message_key, client, delay, lifetime, uid,
        created_at)
    SELECT moved.feed AS feed, (:first::BIGINT - 1) + row_number() OVER (ORDER BY moved.id) AS anon_1,
        moved.kind AS kind, moved.payload AS payload, moved.headers AS headers, moved.message_key AS message_key,
        moved.client AS client, moved.delay AS delay, moved.lifetime AS lifetime, moved.uid AS uid,
        moved.created_at AS created_at
    FROM moved
)
SELECT count(*) AS count_1
FROM moved;
