-- publish_ticks_insert_ticked: Feed.publish, ordering="ticks"
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.ticking.append > store.feeds.messages.insert_rows
INSERT INTO jobs_ticked(feed, id, xid, kind, payload, headers, message_key, client, delay, lifetime, uid)
VALUES (:feed, nextval(:nextval_1), txid_current(), :kind, :payload, :headers, :message_key, :client, :delay,
    :lifetime, :uid)
RETURNING jobs_ticked.id;
