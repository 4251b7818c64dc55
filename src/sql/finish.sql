-- A claimed row is done and goes; a trigger releases its body. $1 bigint: id; $2 bigint: claim. Rides on workqueue_running.
DELETE FROM pepsi.workqueue
WHERE workqueue_id = $1 AND claims = $2 AND status = 'running'
