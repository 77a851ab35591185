-- publish_counter_keep_rows_select_cursors: Feed.publish, ordering="counter", more messages than keep_rows, and a
--   cursor
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.messages.append > feeds.store.messages.keep > feeds.store.messages.trim_messages >
--   feeds.store.messages._read_by_all > feeds.store.spans.slowest
SELECT min(coalesce(jobs_cursors.handed, jobs_cursors.acked)) AS min_1
FROM jobs_cursors
WHERE jobs_cursors.feed = :feed_1;
