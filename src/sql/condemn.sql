-- A claimed row takes its last strike: timeout when it was timed-out, else failed (requirement E2). $1 bigint: id; $2 bigint:
-- claim; $3 integer: strikes, this one included; $4 text: failure_class; $5 text: why. Rides on workqueue_running. Refused at once
-- while somebody has the row locked.
UPDATE pepsi.workqueue
SET status = CASE $4::text WHEN 'timed-out' THEN 'timeout' ELSE 'failed' END::pepsi.queue_status,
    timeout = NULL,
    state = state || jsonb_build_object(
        'strikes', $3::integer, 'failure_class', $4::text, 'last_error', $5::text, 'dispatch_error', $5::text)
WHERE workqueue_id = (
        SELECT workqueue_id
        FROM pepsi.workqueue
        WHERE workqueue_id = $1 AND claims = $2 AND status = 'running'
        FOR NO KEY UPDATE NOWAIT
    )
  AND claims = $2 AND status = 'running'
