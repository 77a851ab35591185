-- rank_select_inbox: a publisher, a reader or a worker numbers the messages of an inbox
-- Also: rank_with_claims_select_inbox
-- Transaction: none has begun, the statement commits by itself
-- Sent by: feeds.store.ranking.rank
-- Always: param_1 = 1
SELECT jobs_inbox.id
FROM jobs_inbox
WHERE jobs_inbox.feed = :feed
LIMIT :param_1;
