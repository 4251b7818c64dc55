-- Claimed rows are paused at their stage, content untouched (requirement B1). One element a row: $1 bigint[]: ids, no two the
-- same; $2 bigint[]: claims; $3 bigint[]: microseconds; $4 jsonb[]: merged into the states. Returns the ids of those that were
-- still ours. By the primary key
-- (IS TRUE, so that it does not walk workqueue_running).
UPDATE pepsi.workqueue q
SET status = 'paused',
    timeout = now() + n.pause_us * interval '1 microsecond',
    state = q.state || n.merge
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::jsonb[]) AS n (id, claim, pause_us, merge)
WHERE q.workqueue_id = ANY ($1) AND q.workqueue_id = n.id AND q.claims = n.claim AND (q.status = 'running') IS TRUE
RETURNING q.workqueue_id
