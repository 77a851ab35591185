-- retry_unknown_kinds_since: Queue.retry_unknown_kinds: when it was deferred for the first time
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.unknown_since
SELECT jobs.id, jobs.unknown_since
FROM jobs
WHERE jobs.id IN (:id_1)
  AND jobs.unknown_since IS NOT NULL;
