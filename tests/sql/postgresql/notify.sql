-- notify: jobs that may be claimed now were added: listening workers wake up when the transaction commits
-- Transaction: within BEGIN … COMMIT
-- Sent by: dialects.postgresql.PostgreSQL.notify
-- Prepared once for each connection.
SELECT pg_notify(:on_channel::VARCHAR, :with_text::VARCHAR) AS pg_notify_1;
