-- read_feed: Feed.read
-- Transaction: none has begun, the statement commits by itself
-- Sent by: feeds.store.messages.read_messages
-- Prepared once for each connection.
SELECT jobs_messages.seq, jobs_messages.kind, jobs_messages.payload, jobs_messages.headers, jobs_messages.message_key,
    jobs_messages.client, jobs_messages.created_at
FROM jobs_messages
WHERE jobs_messages.feed = :feed::BIGINT
  AND jobs_messages.seq > :after::BIGINT
ORDER BY jobs_messages.seq
LIMIT :limit::INTEGER;
