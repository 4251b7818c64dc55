-- A claimed row with new content moves on, all in one. $1 bigint: id; $2 bigint: claim; $3 text: its new status; $4 text: its
-- new stage, null to stay; $5 bigint: microseconds until it is due, if it is paused; $6 jsonb: merged into the state, from
-- which a move to a stage takes what is recorded of failures (requirement E2). Then, each null where it is as it was:
-- $7 text: mail_from; $8 text[]: rcpt_to; $10 text: header_from, $12 text: subject, which are set where $9 and $11 boolean
-- say so; $13 bytea: headers; $15 bytea: the body where $14 boolean says so, null for none.
-- Rides on workqueue_running for the lock and on the primary key for the update (IS TRUE, so that it does not read all of
-- workqueue_running). A column that keeps its value costs nothing: its TOAST pointer is written as it is. A new body
-- is a row of its own, so that no sibling sees it; it is made only once the claim was found and locked.
WITH held AS (
    SELECT workqueue_id FROM pepsi.workqueue
    WHERE workqueue_id = $1 AND claims = $2 AND status = 'running'
    FOR NO KEY UPDATE
), new_body AS (
    INSERT INTO pepsi.workqueue_body (body)
    SELECT $15::bytea FROM held WHERE $14::boolean AND $15::bytea IS NOT NULL
    RETURNING body_id
)
UPDATE pepsi.workqueue q
SET status = $3::text::pepsi.queue_status,
    stage = coalesce($4, q.stage),
    timeout = now() + $5::bigint * interval '1 microsecond',
    state = CASE WHEN $4 IS NULL THEN q.state ELSE q.state - '{strikes,temporary_failures,last_error}'::text[] END || $6,
    mail_from = coalesce($7, q.mail_from),
    rcpt_to = coalesce($8, q.rcpt_to),
    header_from = CASE WHEN $9::boolean THEN $10 ELSE q.header_from END,
    subject = CASE WHEN $11::boolean THEN $12 ELSE q.subject END,
    headers = coalesce($13, q.headers),
    body_id = CASE WHEN $14::boolean THEN (SELECT body_id FROM new_body) ELSE q.body_id END
FROM held
WHERE q.workqueue_id = held.workqueue_id AND q.claims = $2 AND (q.status = 'running') IS TRUE
