-- Claimed rows are done and go (requirement B1); a trigger releases their bodies. One element a row: $1 bigint[]: ids, no two the
-- same; $2 bigint[]: claims. Returns the ids of those that were still ours. By the primary key
-- (IS TRUE, so that it does not walk workqueue_running).
DELETE FROM pepsi.workqueue q
USING unnest($1::bigint[], $2::bigint[]) AS n (id, claim)
WHERE q.workqueue_id = ANY ($1) AND q.workqueue_id = n.id AND q.claims = n.claim AND (q.status = 'running') IS TRUE
RETURNING q.workqueue_id
