-- Every running row but those held goes back to pending. $1 bigint[]: ids held; $2 bigint[]: the claim of each.
-- Rides on workqueue_running.
UPDATE pepsi.workqueue q
SET status = 'pending'
WHERE q.status = 'running'
  AND NOT EXISTS (
      SELECT FROM unnest($1::bigint[], $2::bigint[]) AS held (id, claim)
      WHERE held.id = q.workqueue_id AND held.claim = q.claims
  )
