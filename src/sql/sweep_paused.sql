-- Due paused rows back to pending, the longest due of each stage first (requirements E7, E8). Of each stage: $1 text[]: its name;
-- $2 integer[]: at most how many rows; $3 bigint[]: from which time on to look, microseconds since 1970, null: from the first.
-- Rides on workqueue_due for the choice, on the primary key for locks and update: there the time is compared behind coalesce,
-- since by an index on it all due rows would be read, however many they are. Rows of three kinds: swept - this row went; more
-- - of that stage more are due, and number is the time of the first; due - number is the microseconds until the next is due of
-- the other stages (null: none waits). A row that somebody has locked is passed over and looked at again in a second, so that
-- the caller does not spin on it.
WITH asked AS (
    SELECT a.stage, a.room, coalesce('epoch'::timestamptz + a.since * interval '1 microsecond', '-infinity') AS since
    FROM unnest($1::text[], $2::integer[], $3::bigint[]) AS a (stage, room, since)
), earliest AS (
    SELECT a.stage, e.workqueue_id, e.timeout, e.place > a.room AS is_beyond, e.timeout <= now() AS is_due
    FROM asked a CROSS JOIN LATERAL (
        SELECT f.workqueue_id, f.timeout, row_number() OVER () AS place
        FROM (
            SELECT q.workqueue_id, q.timeout
            FROM pepsi.workqueue q
            WHERE q.status = 'paused' AND q.timeout IS NOT NULL
              AND (q.stage, q.timeout) >= (a.stage, a.since) AND q.stage <= a.stage
            ORDER BY q.stage, q.timeout
            LIMIT a.room + 1
        ) AS f
    ) AS e
), due AS (
    SELECT q.workqueue_id
    FROM pepsi.workqueue q
    WHERE q.workqueue_id = ANY (ARRAY(SELECT e.workqueue_id FROM earliest e WHERE e.is_due AND NOT e.is_beyond))
      AND (q.status = 'paused') IS TRUE AND coalesce(q.timeout <= now(), false)
    FOR UPDATE SKIP LOCKED
), swept AS (
    UPDATE pepsi.workqueue q
    SET status = 'pending', timeout = NULL
    WHERE q.workqueue_id = ANY (ARRAY(SELECT workqueue_id FROM due)) AND (q.status = 'paused') IS TRUE
    RETURNING q.stage, q.workqueue_id
)
SELECT 'swept' AS kind, stage, workqueue_id AS number FROM swept
UNION ALL
SELECT 'more', stage, (extract(epoch FROM timeout) * 1000000)::bigint FROM earliest WHERE is_due AND is_beyond
UNION ALL
SELECT 'due', NULL, min(CASE WHEN is_due THEN 1000000 ELSE extract(epoch FROM timeout - now()) * 1000000 END)::bigint
FROM earliest
WHERE NOT (is_due AND is_beyond) AND workqueue_id NOT IN (SELECT workqueue_id FROM swept)
