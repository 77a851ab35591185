-- tick_select_ticked: a publisher, a reader or a worker numbers messages by a tick
-- Transaction: none has begun, the statement commits by itself
-- Sent by: store.feeds.ticking.tick > store.feeds.ticked.glance
-- Prepared once for each connection.
SELECT jobs_feeds.tick_state, (
    SELECT max(jobs_ticked.id) AS max_1
    FROM jobs_ticked
    WHERE jobs_ticked.feed = :of::BIGINT
) AS anon_1, txid_current_if_assigned() AS txid_current_if_assigned_1
FROM jobs_feeds
WHERE jobs_feeds.id = :of::BIGINT;
