-- A claimed row is paused at its stage, content untouched. $1 bigint: id; $2 bigint: claim; $3 bigint: microseconds;
-- $4 jsonb: merged into the state. Rides on workqueue_running.
UPDATE pepsi.workqueue
SET status = 'paused',
    timeout = now() + $3::bigint * interval '1 microsecond',
    state = state || $4
WHERE workqueue_id = $1 AND claims = $2 AND status = 'running'
