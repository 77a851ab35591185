-- Not sent to: mariadb, mariadb_10.11
-- enqueue_many_select_jobs: Queue.enqueue_many
-- Also: enqueue_shared_select_jobs, enqueue_many_delayed_select_jobs, enqueue_many_loaded_select_jobs,
--   enqueue_many_grouped_select_jobs, enqueue_many_blocked_select_jobs
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > dialects.inserts.Inserts.insert_new >
--   dialects.mysql_inserts.MySQLInserts.bulk_load > dialects.mysql_inserts.MySQLInserts._insert_and_read
SELECT count(*) AS inserted, max(id) AS last_inserted
FROM jobs FORCE INDEX (PRIMARY)
WHERE id >= :of_id
  AND created_at = :now;
