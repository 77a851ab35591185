-- tick_insert_ticks: a publisher, a reader or a worker numbers messages by a tick
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.ticking.tick > store.feeds.ticking._number
INSERT INTO jobs_ticks(feed, last_seq, first_seq, low_id, high_id, snapshot, previous)
VALUES (:feed, :last_seq, :first_seq, :low_id, :high_id, :snapshot, :previous);
