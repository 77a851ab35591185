-- publish_counter_update_feeds: Feed.publish, ordering="counter"
-- Also: publish_counter_keep_rows_update_feeds
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.messages.append
UPDATE jobs_feeds
SET next_seq = (jobs_feeds.next_seq + :count)
WHERE jobs_feeds.id = :feed;
