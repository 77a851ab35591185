-- publish_counter_keep_rows_select_spans: Feed.publish, ordering="counter", more messages than keep_rows, and a
--   cursor
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.messages.append > feeds.store.messages.keep > feeds.store.messages.trim_messages >
--   feeds.store.messages._read_by_all > feeds.store.spans.slowest
SELECT min(jobs_spans.low) AS min_1
FROM jobs_spans
WHERE jobs_spans.feed = :feed_1;
