-- Claimed rows move to a stage each, content untouched; what is recorded of failures at the last one goes (requirements B1, E2).
-- One element a row: $1 bigint[]: ids, no two the same; $2 bigint[]: claims; $3 text[]: stages; $4 jsonb[]: merged into the
-- states. Returns the ids of those that were still ours. By the primary key
-- (IS TRUE, so that it does not walk workqueue_running).
UPDATE pepsi.workqueue q
SET status = 'pending',
    stage = n.stage,
    state = (q.state - '{strikes,temporary_failures,last_error}'::text[]) || n.merge
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::jsonb[]) AS n (id, claim, stage, merge)
WHERE q.workqueue_id = ANY ($1) AND q.workqueue_id = n.id AND q.claims = n.claim AND (q.status = 'running') IS TRUE
RETURNING q.workqueue_id
