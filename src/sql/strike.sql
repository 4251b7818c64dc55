-- A claimed row takes a strike and is paused (requirement E2). $1 bigint: id; $2 bigint: claim; $3 integer: strikes, this one
-- included; $4 bigint: microseconds; $5 text: failure_class; $6 text: why. Rides on workqueue_running. Refused at once
-- while somebody has the row locked.
UPDATE pepsi.workqueue
SET status = 'paused',
    timeout = now() + $4::bigint * interval '1 microsecond',
    state = state || jsonb_build_object(
        'strikes', $3::integer, 'failure_class', $5::text, 'last_error', $6::text, 'dispatch_error', $6::text)
WHERE workqueue_id = (
        SELECT workqueue_id
        FROM pepsi.workqueue
        WHERE workqueue_id = $1 AND claims = $2 AND status = 'running'
        FOR NO KEY UPDATE NOWAIT
    )
  AND claims = $2 AND status = 'running'
