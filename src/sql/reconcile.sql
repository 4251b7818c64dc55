-- Running rows that nobody holds back to pending, each fenced by the claim it was seen under. $1 bigint[]: ids; $2 bigint[]: the
-- claim of each. Returns which went: one that somebody has locked is passed over, and stays running.
-- Rides on the primary key, as requeue.sql.
WITH free AS (
    SELECT q.workqueue_id
    FROM unnest($1::bigint[], $2::bigint[]) AS seen (id, claim)
    JOIN pepsi.workqueue q ON q.workqueue_id = seen.id AND q.claims = seen.claim AND (q.status = 'running') IS TRUE
    FOR NO KEY UPDATE OF q SKIP LOCKED
)
UPDATE pepsi.workqueue q
SET status = 'pending'
WHERE q.workqueue_id = ANY (ARRAY(SELECT workqueue_id FROM free)) AND (q.status = 'running') IS TRUE
RETURNING q.workqueue_id
