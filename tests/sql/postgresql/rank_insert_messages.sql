-- rank_insert_messages: a publisher, a reader or a worker numbers the messages of an inbox
-- Also: rank_with_claims_insert_messages
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.ranking.rank
INSERT INTO jobs_messages(feed, seq, kind, payload, headers, message_key, client, created_at, delay, lifetime)
VALUES (:feed, :seq, :kind, :payload, :headers, :message_key, :client, :created_at, :delay, :lifetime);
