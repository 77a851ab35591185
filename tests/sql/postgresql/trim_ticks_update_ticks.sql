-- trim_ticks_update_ticks: Feed.trim, ordering="ticks": messages that retention does not keep
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.ticked.Ticked.delete
UPDATE jobs_ticks
SET first_seq = :first_seq, low_id = :low_id
WHERE jobs_ticks.feed = :feed_1
  AND jobs_ticks.last_seq >= :last_seq_1
  AND jobs_ticks.first_seq <= :first_seq_1
  AND jobs_ticks.last_seq < :last_seq_2
  AND jobs_ticks.last_seq >= :last_seq_3;
