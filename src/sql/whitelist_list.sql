-- The whitelist for a person. $1 text: address, null for all; $2 text: correspondent, null for all; $3 bigint: at most so many.
-- By the primary key.
SELECT address, correspondent, source,
       to_char(added_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS added_at
FROM pepsi.whitelist
WHERE ($1::text IS NULL OR address = $1) AND ($2::text IS NULL OR correspondent = $2)
ORDER BY address, correspondent
LIMIT $3
