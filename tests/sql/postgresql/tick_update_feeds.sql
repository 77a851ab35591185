-- tick_update_feeds: a publisher, a reader or a worker numbers messages by a tick
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.ticking.tick
UPDATE jobs_feeds
SET next_seq = :numbered, tick_state = :state
WHERE jobs_feeds.id = :of;
