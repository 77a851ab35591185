-- rank_insert_messages: a publisher, a reader or a worker numbers the messages of an inbox
-- Also: rank_with_claims_insert_messages
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.ranking.rank > feeds.dialects.base.FeedDialect.move_numbered >
--   feeds.dialects.base.FeedDialect.move_ids
-- Always: param_1 = 1
INSERT INTO jobs_messages(feed, seq, kind, payload, headers, message_key, client, delay, lifetime, uid, created_at)
SELECT jobs_inbox.feed, (:first - :param_1) + row_number() OVER (ORDER BY jobs_inbox.id) AS anon_1, jobs_inbox.kind,
    jobs_inbox.payload, jobs_inbox.headers, jobs_inbox.message_key, jobs_inbox.client, jobs_inbox.delay,
    jobs_inbox.lifetime, jobs_inbox.uid, jobs_inbox.created_at
FROM jobs_inbox
WHERE jobs_inbox.id IN (:of_ids);
