-- enqueue_many_select_clock: Queue.enqueue_many
-- Also: enqueue_shared_select_clock, enqueue_many_delayed_select_clock, enqueue_many_loaded_select_clock,
--   enqueue_many_grouped_select_clock, enqueue_many_blocked_select_clock
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   dialects.seam.ClaimSeam.insert_new > dialects.mysql.MySQL.bulk_load > dialects.mysql._increment
SELECT @ @ auto_increment_increment;
