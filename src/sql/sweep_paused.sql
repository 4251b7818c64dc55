-- Due paused rows back to pending, the longest due first (requirement E7). $1 bigint: at most how many. Rides on
-- workqueue_due for the choice, on the primary key for locks and update: there the time is compared behind coalesce, since
-- by an index on it all due rows would be read, however many they are. One row: how many went, and the microseconds until
-- the next is due (null: none waits). A row that somebody has locked is passed over and looked at again in a second, so that
-- the caller does not spin on it.
WITH earliest AS (
    SELECT workqueue_id, timeout, row_number() OVER (ORDER BY timeout) AS place
    FROM (
        SELECT workqueue_id, timeout
        FROM pepsi.workqueue
        WHERE status = 'paused' AND timeout IS NOT NULL
        ORDER BY timeout
        LIMIT $1::bigint + 1
    ) AS first_ones
), due AS (
    SELECT q.workqueue_id
    FROM pepsi.workqueue q
    WHERE q.workqueue_id = ANY (ARRAY(SELECT workqueue_id FROM earliest WHERE place <= $1 AND timeout <= now()))
      AND q.status = 'paused' AND coalesce(q.timeout <= now(), false)
    FOR UPDATE SKIP LOCKED
), swept AS (
    UPDATE pepsi.workqueue q
    SET status = 'pending', timeout = NULL
    WHERE q.workqueue_id = ANY (ARRAY(SELECT workqueue_id FROM due)) AND q.status = 'paused'
    RETURNING q.workqueue_id
)
SELECT (SELECT count(*) FROM swept) AS moved,
       (SELECT min(CASE
               WHEN place <= $1 AND timeout <= now() THEN 1000000
               ELSE (greatest(extract(epoch FROM timeout - now()), 0) * 1000000)::bigint
           END)
        FROM earliest
        WHERE workqueue_id NOT IN (SELECT workqueue_id FROM swept)) AS due_in_us
