-- clock: the database's time is read
-- Also: enqueue_unique_for_select_statement_timestamp, enqueue_unique_for_again_select_statement_timestamp,
--   claim_fair_limited_select_statement_timestamp, claim_fair_limited_lone_select_statement_timestamp,
--   claim_fair_limited_by_time_select_statement_timestamp, complete_retained_select_statement_timestamp
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.base.Transaction.read_clock
SELECT CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now_us_1;
