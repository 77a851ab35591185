-- tick_select_ticked_2: a publisher, a reader or a worker numbers messages by a tick
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.ticking.tick > store.feeds.ticking._now
-- Prepared once for each connection.
SELECT CAST(txid_current_snapshot() AS TEXT) AS snapshot, txid_current() AS xid, (
    SELECT max(jobs_ticked.id) AS max_1
    FROM jobs_ticked
    WHERE jobs_ticked.feed = :of::BIGINT
) AS seen;
