-- Rows whose number is smaller than the one they are held under: they lost that claim in a crash of the server. It is raised, so
-- that no other worker is ever given that number, and one that runs goes back to pending; a lock on such a row is waited for.
-- $1 bigint[]: ids held; $2 bigint[]: the claim of each. Rides on the primary key.
UPDATE pepsi.workqueue q
SET status = CASE WHEN q.status = 'running' THEN 'pending' ELSE q.status END,
    claims = held.claim
FROM (SELECT h.id, max(h.claim) AS claim FROM unnest($1::bigint[], $2::bigint[]) AS h (id, claim) GROUP BY h.id) AS held
WHERE q.workqueue_id = held.id AND q.claims < held.claim
