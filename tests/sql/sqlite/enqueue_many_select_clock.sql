-- enqueue_many_select_clock: Queue.enqueue_many
-- Also: enqueue_shared_select_clock, enqueue_many_delayed_select_clock, enqueue_many_loaded_select_clock,
--   enqueue_many_grouped_select_clock, enqueue_many_blocked_select_clock
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > dialects.inserts.Inserts.insert_new > dialects.sqlite.SQLiteInserts.bulk_load
SELECT last_insert_rowid() AS last_insert_rowid_1;
