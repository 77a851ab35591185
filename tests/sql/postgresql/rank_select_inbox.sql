-- rank_select_inbox: a publisher, a reader or a worker numbers the messages of an inbox
-- Also: rank_with_claims_select_inbox
-- Transaction: none has begun, the statement commits by itself
-- Sent by: feeds.store.ranking.rank
-- Prepared once for each connection.
SELECT jobs_inbox.id
FROM jobs_inbox
WHERE jobs_inbox.feed = :feed::BIGINT
LIMIT 1;
