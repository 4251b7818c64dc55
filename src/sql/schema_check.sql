-- What is installed: name, SHA-256 in hexadecimal, and the time as RFC 3339 in UTC. No parameters. Reads the few rows of
-- schema_version, by no index; every worker that starts asks it, so it is as plain as can be.
SELECT patch, checksum, to_char(installed_at, 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS installed_at FROM pepsi.schema_version
