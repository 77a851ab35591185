-- confirm_dead_select_dead: the reply to the COMMIT of a burial was lost: whether it shows
-- Transaction: within BEGIN … COMMIT
-- Sent by: store.settle.look > store.settle._traces
SELECT jobs_dead.id, jobs_dead.version
FROM jobs_dead
WHERE jobs_dead.id IN (:id_1);
