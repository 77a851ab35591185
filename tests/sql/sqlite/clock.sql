-- clock: the database's time is read
-- Also: enqueue_many_select_clock, enqueue_shared_select_clock, enqueue_many_delayed_select_clock,
--   enqueue_many_loaded_select_clock, enqueue_unique_for_select_clock, enqueue_unique_for_again_select_clock,
--   enqueue_many_grouped_select_clock, enqueue_many_blocked_select_clock, claim_fair_limited_select_clock,
--   claim_fair_limited_lone_select_clock, claim_fair_limited_by_time_select_clock, complete_retained_select_clock
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.base.Transaction.read_clock
SELECT (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) AS now_us_1;
