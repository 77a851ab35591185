-- publish_counter_keep_rows_select_spans: Feed.publish, ordering="counter", more messages than keep_rows, and a
--   cursor
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.messages.append > store.feeds.messages.keep > store.feeds.messages.cut >
--   store.feeds.messages._read_by_all > store.feeds.spans.slowest
SELECT min(jobs_spans.low) AS min_1
FROM jobs_spans
WHERE jobs_spans.feed = :feed_1;
