-- delete_claimed_delete_messages: MessageClaim.delete
-- Also: pop_messages_delete_messages
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.claims.delete > feeds.store.claim_rows.remove
DELETE FROM jobs_messages
WHERE jobs_messages.feed = :feed_1
  AND jobs_messages.seq IN (:seq_1);
