-- publish_counter_insert_messages: Feed.publish, ordering="counter"
-- Also: publish_counter_keep_rows_insert_messages
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.messages.append > feeds.store.messages.insert_rows
INSERT INTO jobs_messages(feed, seq, kind, payload, headers, message_key, client, delay, lifetime, uid)
VALUES (:feed, :seq, :kind, :payload, :headers, :message_key, :client, :delay, :lifetime, :uid);
