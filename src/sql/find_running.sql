-- The running rows, the oldest first; nothing is changed. $1 bigint: at most so many. Rides on workqueue_running. Strikes as in a
-- claim. Which of them are held is found out by the caller: in the session's plans that would cost the product of both counts.
SELECT q.workqueue_id, q.claims, q.stage,
       CASE WHEN jsonb_typeof(q.state -> 'strikes') = 'number'
           THEN least(greatest(trunc((q.state ->> 'strikes')::numeric), 0), 1000)::integer ELSE 0 END AS strikes
FROM pepsi.workqueue q
WHERE q.status = 'running'
ORDER BY q.workqueue_id
LIMIT $1
