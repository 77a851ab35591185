-- enqueue_many_loaded_select_statement_timestamp: Queue.enqueue_many, 500 plain jobs or more
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.load_jobs > dialects.postgresql_bulk.PostgreSQLBulk.load_new
-- Prepared once for each connection.
SELECT nextval((
    SELECT CAST(pg_get_serial_sequence(:name::VARCHAR, 'id') AS REGCLASS) AS pg_get_serial_sequence_1
)) AS id,
    CASE WHEN (anon_1.place = 1) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) END AS now,
    CASE WHEN (anon_1.place = 1) THEN row_security_active(:name::VARCHAR) END AS secured
FROM generate_series(1, :rows::INTEGER) AS anon_1(place);
