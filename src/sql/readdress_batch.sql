-- Claimed rows move to a stage each with another envelope; what is recorded of failures at the last one goes (requirements B1, E2).
-- One element a row: $1 bigint[]: ids, no two the same; $2 bigint[]: claims; $3 text[]: stages; $4 jsonb[]: merged into the
-- states; $5 text[]: mail_from, null where it is as it was; $6 jsonb[]: rcpt_to, an array of text, null where it is as it was.
-- Returns the ids of those that were still ours. By the primary key
-- (IS TRUE, so that it does not walk workqueue_running).
UPDATE pepsi.workqueue q
SET status = 'pending',
    stage = n.stage,
    state = (q.state - '{strikes,temporary_failures,last_error}'::text[]) || n.merge,
    mail_from = coalesce(n.mail_from, q.mail_from),
    rcpt_to = CASE WHEN n.rcpt_to IS NULL THEN q.rcpt_to ELSE ARRAY(SELECT jsonb_array_elements_text(n.rcpt_to)) END
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::jsonb[], $5::text[], $6::jsonb[])
    AS n (id, claim, stage, merge, mail_from, rcpt_to)
WHERE q.workqueue_id = ANY ($1) AND q.workqueue_id = n.id AND q.claims = n.claim AND (q.status = 'running') IS TRUE
RETURNING q.workqueue_id
