-- Claimed rows back to pending, each fenced by its claim. $1 bigint[]: ids; $2 bigint[]: the claim of each. Refused at once, and
-- for all of them, while somebody has one locked.
-- Rides on the primary key; IS TRUE keeps the planner from reading all of workqueue_running instead.
WITH ours AS (
    SELECT q.workqueue_id
    FROM unnest($1::bigint[], $2::bigint[]) AS held (id, claim)
    JOIN pepsi.workqueue q ON q.workqueue_id = held.id AND q.claims = held.claim AND (q.status = 'running') IS TRUE
    FOR NO KEY UPDATE OF q NOWAIT
)
UPDATE pepsi.workqueue q
SET status = 'pending'
WHERE q.workqueue_id = ANY (ARRAY(SELECT workqueue_id FROM ours)) AND (q.status = 'running') IS TRUE
