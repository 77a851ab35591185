-- trim_ticks_delete_ticks: Feed.trim, ordering="ticks": messages that retention does not keep
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.ticked.Ticked.delete
DELETE FROM jobs_ticks
WHERE jobs_ticks.feed = :feed_1
  AND jobs_ticks.last_seq >= :last_seq_1
  AND jobs_ticks.last_seq < :last_seq_2;
