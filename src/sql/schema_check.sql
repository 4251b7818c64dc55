-- This release's files beside what is installed. $1 text[]: their names; $2 text[]: their SHA-256 in hexadecimal, in the same order.
-- One row a name on either side; state is same, changed, missing, or foreign (installed, but none of ours). Reads the few
-- rows of schema_version, by no index.
SELECT coalesce(f.name, v.patch) AS name,
       CASE
           WHEN v.patch IS NULL THEN 'missing'
           WHEN f.name IS NULL THEN 'foreign'
           WHEN v.checksum = f.checksum THEN 'same'
           ELSE 'changed'
       END AS state,
       coalesce(v.checksum, '') AS checksum,
       coalesce(to_char(v.installed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), '') AS installed_at
FROM pepsi.schema_version v
FULL JOIN unnest($1::text[], $2::text[]) AS f (name, checksum) ON f.name = v.patch
ORDER BY name
