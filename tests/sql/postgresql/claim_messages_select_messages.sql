-- claim_messages_select_messages: Feed.claim
-- Also: pop_messages_select_messages
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.claim > feeds.store.claims._messages
SELECT jobs_messages.seq, jobs_messages.kind, jobs_messages.payload, jobs_messages.headers, jobs_messages.message_key,
    jobs_messages.client, jobs_messages.created_at
FROM jobs_messages
WHERE jobs_messages.feed = :feed_1
  AND jobs_messages.seq IN (:seq_1)
ORDER BY jobs_messages.seq;
