-- Tries the dispatcher's advisory lock once; it is the session's, until the session ends. The first number is "peps" in
-- ASCII, the second says for what. One row: whether it was taken, and our own backend.
SELECT pg_try_advisory_lock(1885696115, 1) AS is_taken, pg_backend_pid() AS pid,
       (extract(epoch FROM a.backend_start) * 1000000)::bigint AS started_us
FROM pg_stat_activity a
WHERE a.pid = pg_backend_pid()
