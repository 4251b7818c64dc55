-- Claimed rows are failed, content untouched (requirement B1). One element a row: $1 bigint[]: ids, no two the same; $2 bigint[]:
-- claims; $3 jsonb[]: merged into the states. Returns the ids of those that were still ours. By the primary key, as
-- advance_batch.sql.
UPDATE pepsi.workqueue q
SET status = 'failed',
    state = q.state || ($3::jsonb[])[array_position($1, q.workqueue_id)]
WHERE q.workqueue_id = ANY ($1::bigint[]) AND q.claims = ($2::bigint[])[array_position($1, q.workqueue_id)]
  AND (q.status = 'running') IS TRUE
RETURNING q.workqueue_id
