-- read_feed: Feed.read
-- Transaction: none has begun, the statement commits by itself
-- Sent by: feeds.store.messages.read_messages
-- Always: param_1 = 0
SELECT jobs_messages.seq, jobs_messages.kind, jobs_messages.payload, jobs_messages.headers, jobs_messages.message_key,
    jobs_messages.client, jobs_messages.created_at
FROM jobs_messages
WHERE jobs_messages.feed = :feed
  AND jobs_messages.seq > :after
ORDER BY jobs_messages.seq
LIMIT :limit
OFFSET :param_1;
