-- publish_counter_keep_rows_update_feeds: Feed.publish, ordering="counter", more messages than keep_rows, and a
--   cursor
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.messages.append > feeds.store.messages.keep > feeds.store.messages.trim_messages
UPDATE jobs_feeds
SET first_seq = :first_seq
WHERE jobs_feeds.id = :id_1
  AND jobs_feeds.first_seq < :first_seq_1;
