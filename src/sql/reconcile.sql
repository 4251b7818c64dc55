-- Every running row but those held goes back to pending. $1 bigint[]: ids held; $2 bigint[]: the claim of each.
-- Rides on workqueue_running, and on the primary key for the held ones. A row whose number is smaller than the one it is held
-- under lost its claim in a crash of the server; it is raised, so that no other worker is ever given that number.
WITH held AS (
    SELECT h.id, h.claim FROM unnest($1::bigint[], $2::bigint[]) AS h (id, claim)
), wrong AS (
    SELECT q.workqueue_id
    FROM pepsi.workqueue q
    WHERE q.status = 'running'
      AND NOT EXISTS (SELECT FROM held WHERE held.id = q.workqueue_id AND held.claim = q.claims)
    UNION ALL
    SELECT q.workqueue_id
    FROM held CROSS JOIN LATERAL (
        SELECT w.workqueue_id FROM pepsi.workqueue w WHERE w.workqueue_id = held.id AND w.claims < held.claim
    ) AS q
)
UPDATE pepsi.workqueue q
SET status = CASE WHEN q.status = 'running' THEN 'pending' ELSE q.status END,
    claims = greatest(q.claims, (SELECT max(held.claim) FROM held WHERE held.id = q.workqueue_id))
WHERE q.workqueue_id = ANY (ARRAY(SELECT workqueue_id FROM wrong))
