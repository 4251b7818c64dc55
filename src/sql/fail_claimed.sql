-- A claimed row whose worker answered with a failure and did not write one itself (requirement R3). $1 bigint: id; $2 bigint:
-- claim; $3 text: why. Rides on workqueue_running. Refused at once
-- while somebody has the row locked.
UPDATE pepsi.workqueue
SET status = 'failed',
    timeout = NULL,
    state = state || jsonb_build_object('dispatch_error', $3::text)
WHERE workqueue_id = (
        SELECT workqueue_id
        FROM pepsi.workqueue
        WHERE workqueue_id = $1 AND claims = $2 AND status = 'running'
        FOR NO KEY UPDATE NOWAIT
    )
  AND claims = $2 AND status = 'running'
