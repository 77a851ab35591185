-- rank_select_feeds: a publisher, a reader or a worker numbers the messages of an inbox
-- Also: rank_with_claims_select_feeds
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.ranking.rank
SELECT jobs_feeds.next_seq, jobs_feeds.first_seq, jobs_feeds.keep_rows, jobs_feeds.keep_unread,
    jobs_feeds.max_attempts
FROM jobs_feeds
WHERE jobs_feeds.id = :id_1;
