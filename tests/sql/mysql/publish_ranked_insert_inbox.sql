-- publish_ranked_insert_inbox: Feed.publish, ordering="ranked"
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.ranking.append > feeds.store.messages.insert_rows
INSERT INTO jobs_inbox(feed, kind, payload, headers, message_key, client, delay, lifetime, uid)
VALUES (:feed, :kind, :payload, :headers, :message_key, :client, :delay, :lifetime, :uid);
