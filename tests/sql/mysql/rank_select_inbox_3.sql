-- rank_select_inbox_3: a publisher, a reader or a worker numbers the messages of an inbox
-- Also: rank_with_claims_select_inbox
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.ranking.rank
SELECT jobs_inbox.id, jobs_inbox.kind, jobs_inbox.payload, jobs_inbox.headers, jobs_inbox.message_key,
    jobs_inbox.client, jobs_inbox.delay, jobs_inbox.lifetime, jobs_inbox.created_at
FROM jobs_inbox
WHERE jobs_inbox.id IN (:id_1);
