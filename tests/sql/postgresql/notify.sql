-- notify: jobs that may be claimed now were added: listening workers wake up when the transaction commits
-- Also: complete_grouped_select_clock, complete_node_select_clock, complete_nodes_select_clock,
--   bury_node_select_clock, admit_select_clock, admit_many_select_clock
-- Transaction: within BEGIN … COMMIT
-- Sent by: dialects.postgresql.PostgreSQL.notify
SELECT pg_notify(:channel, :text);
