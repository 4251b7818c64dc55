-- As claim.sql, passing over rows that somebody has locked: after a claim that waited too long for one (requirement W3).
-- $1 text[]: stages; $2 integer[]: capacity of each; $3 bigint[]: smallest id worth looking at of each.
-- Rides on workqueue_pending for the choice and on the primary key for the update. The stage is compared as a range, and
-- stands in ORDER BY: with an equality the planner may walk the primary key instead, past every other stage's rows. The row
-- comparison starts the scan at the floor, behind the dead entries of what was claimed before. The update repeats the
-- status, which is all that READ COMMITTED checks again on a row that changed meanwhile; IS TRUE keeps that from opening the
-- partial indexes to the update, of which a plan made for an empty table would read all. The last row, without an id, has the
-- microseconds until the earliest paused row is due (null: none waits, negative: overdue), by workqueue_due.
WITH chosen AS (
    SELECT oldest.workqueue_id
    FROM unnest($1::text[], $2::integer[], $3::bigint[]) AS want (stage, capacity, floor)
    CROSS JOIN LATERAL (
        SELECT q.workqueue_id
        FROM pepsi.workqueue q
        WHERE q.status = 'pending'
          AND (q.stage, q.workqueue_id) >= (want.stage, want.floor) AND q.stage <= want.stage
        ORDER BY q.stage, q.workqueue_id
        LIMIT want.capacity
        FOR UPDATE SKIP LOCKED
    ) AS oldest
), claimed AS (
    UPDATE pepsi.workqueue q
    SET status = 'running', claims = claims + 1
    WHERE q.workqueue_id = ANY (ARRAY(SELECT workqueue_id FROM chosen)) AND (q.status = 'pending') IS TRUE
    RETURNING q.workqueue_id, q.claims, q.stage, q.sender_key,
        CASE WHEN jsonb_typeof(q.state -> 'strikes') = 'number'
            THEN least(greatest(trunc((q.state ->> 'strikes')::numeric), 0), 1000)::integer ELSE 0 END AS strikes
)
SELECT workqueue_id, claims, stage, sender_key, strikes, NULL::bigint AS due_in_us
FROM claimed
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, (extract(epoch FROM min(timeout) - now()) * 1000000)::bigint
FROM pepsi.workqueue
WHERE status = 'paused' AND timeout IS NOT NULL
ORDER BY workqueue_id NULLS LAST
