-- Who holds the dispatcher's advisory lock of this database; no row when nobody does. A backend whose start another role may
-- not see has 0.
SELECT l.pid, coalesce((extract(epoch FROM a.backend_start) * 1000000)::bigint, 0) AS started_us
FROM pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 1885696115 AND l.objid = 1 AND l.objsubid = 2
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
