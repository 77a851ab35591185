-- tick_select_feeds: a publisher, a reader or a worker numbers messages by a tick
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.ticking.tick
-- Prepared once for each connection.
SELECT jobs_feeds.next_seq, jobs_feeds.first_seq, jobs_feeds.keep_rows, jobs_feeds.keep_unread,
    jobs_feeds.max_attempts, jobs_feeds.tick_state
FROM jobs_feeds
WHERE jobs_feeds.id = :of::BIGINT FOR NO KEY
UPDATE SKIP LOCKED;
