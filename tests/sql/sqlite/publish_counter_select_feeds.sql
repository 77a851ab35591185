-- publish_counter_select_feeds: Feed.publish, ordering="counter"
-- Also: publish_counter_keep_rows_select_feeds
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.messages.append
SELECT jobs_feeds.next_seq, jobs_feeds.first_seq, jobs_feeds.keep_rows, jobs_feeds.keep_unread,
    jobs_feeds.max_attempts, jobs_feeds.epoch
FROM jobs_feeds
WHERE jobs_feeds.id = :feed;
