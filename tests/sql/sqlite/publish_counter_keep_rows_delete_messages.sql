-- publish_counter_keep_rows_delete_messages: Feed.publish, ordering="counter", more messages than keep_rows, and a
--   cursor
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.messages.append > feeds.store.messages.keep > feeds.store.messages.trim_messages
DELETE FROM jobs_messages
WHERE jobs_messages.feed = :feed_1
  AND jobs_messages.seq >= :seq_1
  AND jobs_messages.seq < :seq_2;
