-- Ends a backend if it is the one that was meant. $1 integer: its pid; $2 bigint: its start, microseconds since 1970.
SELECT pg_terminate_backend(a.pid)
FROM pg_stat_activity a
WHERE a.pid = $1 AND (extract(epoch FROM a.backend_start) * 1000000)::bigint = $2 AND a.datname = current_database()
