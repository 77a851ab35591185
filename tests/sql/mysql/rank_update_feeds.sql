-- rank_update_feeds: a publisher, a reader or a worker numbers the messages of an inbox
-- Also: rank_with_claims_update_feeds
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.ranking.rank
UPDATE jobs_feeds
SET next_seq = :next_seq
WHERE jobs_feeds.id = :id_1;
