-- notify: jobs that may be claimed now were added: listening workers wake up when the transaction commits
-- Transaction: within BEGIN … COMMIT
-- Sent by: dialects.postgresql.PostgreSQL.notify
SELECT pg_notify(:channel, :text) AS pg_notify_1;
