-- Claimed rows are done and go (requirement B1); a trigger releases their bodies. One element a row: $1 bigint[]: ids, no two the
-- same; $2 bigint[]: claims. Returns the ids of those that were still ours. By the primary key, as advance_batch.sql.
DELETE FROM pepsi.workqueue q
WHERE q.workqueue_id = ANY ($1::bigint[]) AND q.claims = ($2::bigint[])[array_position($1, q.workqueue_id)]
  AND (q.status = 'running') IS TRUE
RETURNING q.workqueue_id
