-- A claimed row is paused without a strike. $1 bigint: id; $2 bigint: claim; $3 bigint: microseconds; $4 text: why.
-- Rides on workqueue_running. Refused at once
-- while somebody has the row locked.
UPDATE pepsi.workqueue
SET status = 'paused',
    timeout = now() + $3::bigint * interval '1 microsecond',
    state = state || jsonb_build_object('last_error', $4::text)
WHERE workqueue_id = (
        SELECT workqueue_id
        FROM pepsi.workqueue
        WHERE workqueue_id = $1 AND claims = $2 AND status = 'running'
        FOR NO KEY UPDATE NOWAIT
    )
  AND claims = $2 AND status = 'running'
