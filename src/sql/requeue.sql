-- Claimed rows back to pending, each fenced by its claim. $1 bigint[]: ids; $2 bigint[]: the claim of each.
-- Rides on the primary key; IS TRUE keeps the planner from reading all of workqueue_running instead.
UPDATE pepsi.workqueue q
SET status = 'pending'
FROM unnest($1::bigint[], $2::bigint[]) AS held (id, claim)
WHERE q.workqueue_id = held.id AND q.claims = held.claim AND (q.status = 'running') IS TRUE
