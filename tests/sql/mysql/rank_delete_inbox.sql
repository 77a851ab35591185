-- rank_delete_inbox: a publisher, a reader or a worker numbers the messages of an inbox
-- Also: rank_with_claims_delete_inbox
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.ranking.rank > feeds.dialects.base.FeedDialect.move_numbered >
--   feeds.dialects.mysql.MySQLForFeeds.move_ids
DELETE jobs_inbox
FROM JSON_TABLE(:of_ids, '$[*]' COLUMNS(nth FOR ORDINALITY, id BIGINT PATH '$')) AS given
STRAIGHT_JOIN jobs_inbox ON jobs_inbox.id = given.id;
