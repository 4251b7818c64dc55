-- Running rows but those held, at most a thousand, the oldest first; nothing is changed. $1 bigint[]: ids held; $2 bigint[]:
-- the claim of each. Rides on workqueue_running. Strikes as in a claim.
SELECT q.workqueue_id, q.claims, q.stage,
       CASE WHEN jsonb_typeof(q.state -> 'strikes') = 'number'
           THEN least(greatest(trunc((q.state ->> 'strikes')::numeric), 0), 1000)::integer ELSE 0 END AS strikes
FROM pepsi.workqueue q
WHERE q.status = 'running'
  AND NOT EXISTS (
      SELECT FROM unnest($1::bigint[], $2::bigint[]) AS held (id, claim)
      WHERE held.id = q.workqueue_id AND held.claim = q.claims
  )
ORDER BY q.workqueue_id
LIMIT 1000
