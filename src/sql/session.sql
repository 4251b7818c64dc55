-- What must hold of a session before it is used. No parameters, no table.
SELECT current_setting('transaction_read_only') AS read_only,
       pg_catalog.pg_is_in_recovery()::text AS in_recovery,
       current_setting('server_version_num') AS version,
       pg_catalog.getdatabaseencoding()::text AS encoding
