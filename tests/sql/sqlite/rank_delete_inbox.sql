-- rank_delete_inbox: a publisher, a reader or a worker numbers the messages of an inbox
-- Also: rank_with_claims_delete_inbox
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.ranking.rank > feeds.dialects.base.FeedDialect.move_numbered >
--   feeds.dialects.base.FeedDialect.move_ids
DELETE FROM jobs_inbox
WHERE jobs_inbox.id IN (:of_ids);
