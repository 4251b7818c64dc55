-- Claimed rows move to a stage each, content untouched; what is recorded of failures at the last one goes (requirements B1, E2).
-- One element a row: $1 bigint[]: ids, no two the same; $2 bigint[]: claims; $3 text[]: stages; $4 jsonb[]: merged into the
-- states. Returns the ids of those that were still ours. By the primary key (IS TRUE, so that it does not walk
-- workqueue_running); what belongs to a row is found by its place, since a join with the arrays would compare each with each.
UPDATE pepsi.workqueue q
SET status = 'pending',
    stage = ($3::text[])[array_position($1, q.workqueue_id)],
    state = (q.state - '{strikes,temporary_failures,last_error}'::text[]) || ($4::jsonb[])[array_position($1, q.workqueue_id)]
WHERE q.workqueue_id = ANY ($1::bigint[]) AND q.claims = ($2::bigint[])[array_position($1, q.workqueue_id)]
  AND (q.status = 'running') IS TRUE
RETURNING q.workqueue_id
