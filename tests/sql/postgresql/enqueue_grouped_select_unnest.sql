-- enqueue_grouped_select_unnest: Queue.enqueue with a group
-- Also: enqueue_many_grouped_select_unnest, enqueue_many_blocked_select_unnest, complete_grouped_select_unnest,
--   admit_select_unnest, admit_many_select_unnest
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.enqueue.insert_jobs > store.enqueue._insert_grouped > store.enqueue._insert >
--   groups.store.dependents.Entry.block > groups.store.dependents.Entry.waiting > groups.store.groups.first_members >
--   groups.dialects.postgresql.PostgreSQLForGroups.first_in_groups
-- Prepared once for each connection.
SELECT given.place - 1 AS place, member.id, member.version, member.available_at
FROM unnest(:keys::TEXT[]) WITH ORDINALITY AS given(key, place)
JOIN LATERAL(
    SELECT jobs.id AS id, jobs.version AS version, jobs.available_at AS available_at
    FROM jobs
    WHERE jobs.queue = :of_queue::VARCHAR
      AND (jobs.group_key, jobs.id) > (given.key, 0)
      AND jobs.group_key <= given.key
    ORDER BY jobs.group_key, jobs.id
    LIMIT :most::INTEGER
) AS member ON true;
