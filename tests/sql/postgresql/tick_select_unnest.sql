-- tick_select_unnest: a publisher, a reader or a worker numbers messages by a tick
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.feeds.ticking.tick > store.feeds.ticking._number > store.feeds.ticked.unnumbered
-- Prepared once for each connection.
SELECT anon_1.id
FROM (
    SELECT late.id AS id
    FROM (
        SELECT anon_2.value AS value
        FROM unnest(:open::BIGINT[]) AS anon_2(value)
        WHERE greatest(:of_cut::BIGINT, :of_base::BIGINT) < :of_floor::BIGINT
        UNION ALL
        SELECT anon_3.value AS value
        FROM generate_series(:of_xmax::BIGINT, :of_xid::BIGINT - 1) AS anon_3(value)
        WHERE greatest(:of_cut::BIGINT, :of_base::BIGINT) < :of_floor::BIGINT
    ) AS xids
    JOIN LATERAL(
        SELECT jobs_ticked.id AS id
        FROM jobs_ticked
        WHERE jobs_ticked.feed = :of_feed::BIGINT
          AND txid_visible_in_snapshot(jobs_ticked.xid, CAST(:target::VARCHAR AS txid_snapshot))
          AND (jobs_ticked.xid, jobs_ticked.id) > (xids.value, greatest(:of_cut::BIGINT, :of_base::BIGINT))
          AND (jobs_ticked.xid, jobs_ticked.id) <= (xids.value, :of_floor::BIGINT)
        ORDER BY jobs_ticked.xid, jobs_ticked.id
        LIMIT :most::INTEGER
    ) AS late ON true
    ORDER BY late.id
    LIMIT :most::INTEGER
) AS anon_1
UNION ALL
SELECT anon_4.id
FROM (
    SELECT jobs_ticked.id AS id
    FROM jobs_ticked
    WHERE jobs_ticked.feed = :of_feed::BIGINT
      AND txid_visible_in_snapshot(jobs_ticked.xid, CAST(:target::VARCHAR AS txid_snapshot))
      AND jobs_ticked.id > greatest(:of_floor::BIGINT, :of_cut::BIGINT)
      AND (jobs_ticked.id > :of_seen::BIGINT OR NOT txid_visible_in_snapshot(jobs_ticked.xid,
          CAST(:last::VARCHAR AS txid_snapshot)))
      AND jobs_ticked.id <= :of_target_seen::BIGINT
    ORDER BY jobs_ticked.id
    LIMIT :most::INTEGER
) AS anon_4;
