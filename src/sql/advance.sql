-- A claimed row moves to a stage, content untouched; what is recorded of failures at the last one goes (requirement E2).
-- $1 bigint: id; $2 bigint: claim; $3 text: stage; $4 jsonb: merged into the state. Rides on workqueue_running.
UPDATE pepsi.workqueue
SET status = 'pending',
    stage = $3,
    state = (state - '{strikes,temporary_failures,last_error}'::text[]) || $4
WHERE workqueue_id = $1 AND claims = $2 AND status = 'running'
