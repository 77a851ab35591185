-- notify: jobs that may be claimed now were added: listening workers wake up when the transaction commits
-- Transaction: within BEGIN … COMMIT
-- Sent by: dialects.postgresql.PostgreSQL.notify
SELECT pg_notify(:pg_notify_2, :pg_notify_3) AS pg_notify_1;
