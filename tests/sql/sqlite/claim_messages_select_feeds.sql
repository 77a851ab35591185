-- claim_messages_select_feeds: Feed.claim
-- Also: pop_messages_select_feeds
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.claim > feeds.store.claims._epoch > feeds.store.rows.by_id
SELECT jobs_feeds.id, jobs_feeds.name, jobs_feeds.ordering, jobs_feeds.next_seq, jobs_feeds.first_seq,
    jobs_feeds.epoch, jobs_feeds.token, jobs_feeds.keep_rows, jobs_feeds.keep_for, jobs_feeds.keep_unread,
    jobs_feeds.created_at, jobs_feeds.max_attempts, jobs_feeds.delay, jobs_feeds.lifetime
FROM jobs_feeds
WHERE jobs_feeds.id = :of;
