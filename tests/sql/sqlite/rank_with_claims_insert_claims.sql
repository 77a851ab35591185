-- rank_with_claims_insert_claims: the same, of a feed with claims
-- Transaction: within BEGIN … COMMIT
-- Sent by: feeds.store.ranking.rank > feeds.store.messages.keep > feeds.store.claim_rows.add
INSERT INTO jobs_claims(feed, seq, until, expires_at)
SELECT jobs_messages.feed, jobs_messages.seq,
    coalesce(jobs_messages.created_at + jobs_messages.delay, :coalesce_2) AS coalesce_1,
    jobs_messages.created_at + jobs_messages.lifetime AS anon_1
FROM jobs_messages
WHERE jobs_messages.feed = :feed_1
  AND jobs_messages.seq >= :seq_1
  AND jobs_messages.seq <= :seq_2;
