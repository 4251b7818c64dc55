-- Claimed rows move to a stage each with another envelope; what is recorded of failures at the last one goes (requirements B1, E2).
-- One element a row: $1 bigint[]: ids, no two the same; $2 bigint[]: claims; $3 text[]: stages; $4 jsonb[]: merged into the
-- states; $5 text[]: mail_from, null where it is as it was; $6 jsonb[]: rcpt_to, an array of text, null where it is as it was.
-- Returns the ids of those that were still ours. By the primary key, as advance_batch.sql.
UPDATE pepsi.workqueue q
SET status = 'pending',
    stage = ($3::text[])[array_position($1, q.workqueue_id)],
    state = (q.state - '{strikes,temporary_failures,last_error}'::text[]) || ($4::jsonb[])[array_position($1, q.workqueue_id)],
    mail_from = coalesce(($5::text[])[array_position($1, q.workqueue_id)], q.mail_from),
    rcpt_to = CASE WHEN ($6::jsonb[])[array_position($1, q.workqueue_id)] IS NULL THEN q.rcpt_to
        ELSE ARRAY(SELECT jsonb_array_elements_text(($6::jsonb[])[array_position($1, q.workqueue_id)])) END
WHERE q.workqueue_id = ANY ($1::bigint[]) AND q.claims = ($2::bigint[])[array_position($1, q.workqueue_id)]
  AND (q.status = 'running') IS TRUE
RETURNING q.workqueue_id
