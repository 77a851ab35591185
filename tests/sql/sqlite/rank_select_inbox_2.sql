-- rank_select_inbox_2: a publisher, a reader or a worker numbers the messages of an inbox
-- Also: rank_with_claims_select_inbox
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.ranking.rank > feeds.dialects.base.FeedDialect.move_numbered
-- Always: param_1 = 0
SELECT jobs_inbox.id, length(jobs_inbox.payload) AS length_1
FROM jobs_inbox
WHERE jobs_inbox.feed = :of_feed
ORDER BY jobs_inbox.id
LIMIT :most
OFFSET :param_1;
