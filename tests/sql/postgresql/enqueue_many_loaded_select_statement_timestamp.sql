-- enqueue_many_loaded_select_statement_timestamp: Queue.enqueue_many, 100 plain jobs or more
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.load_jobs > store.enqueue._load_plain >
--   dialects.postgresql_inserts.PostgreSQLInserts.load_new
-- Prepared once for each connection.
SELECT min(taken.id) AS first, max(taken.id) AS last,
    CASE WHEN (max(taken.id) - min(taken.id) >= count(*)) THEN array_agg(taken.id) END AS scattered,
    CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now,
    row_security_active(:name::VARCHAR) AS secured
FROM (
    SELECT nextval((
        SELECT CAST(pg_get_serial_sequence(:name::VARCHAR, 'id') AS REGCLASS) AS pg_get_serial_sequence_1
    )) AS id
    FROM generate_series(1, :rows::INTEGER) AS places
) AS taken;
