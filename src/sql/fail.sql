-- A claimed row fails, content untouched. $1 bigint: id; $2 bigint: claim; $3 jsonb: merged into the state. Rides on
-- workqueue_running.
UPDATE pepsi.workqueue
SET status = 'failed',
    state = state || $3
WHERE workqueue_id = $1 AND claims = $2 AND status = 'running'
