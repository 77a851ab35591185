-- publish_ranked_select_feeds: Feed.publish, ordering="ranked"
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.ranking.append > feeds.store.rows.pin
SELECT jobs_feeds.id
FROM jobs_feeds
WHERE jobs_feeds.name = :name LOCK IN SHARE MODE;
