-- rank_delete_inbox: a publisher, a reader or a worker numbers the messages of an inbox
-- Also: rank_with_claims_delete_inbox
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.ranking.rank > dialects.bulk.Bulk.move_numbered > dialects.bulk.Bulk.move_ids
DELETE FROM jobs_inbox
WHERE jobs_inbox.id IN (:of_ids);
