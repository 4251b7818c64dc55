-- What addresses have set. $1 text: address, null for all; $2 text: stage, null for all; $3 bigint: at most so many. By the
-- primary key.
SELECT address, stage, option, value
FROM pepsi.settings
WHERE ($1::text IS NULL OR address = $1) AND ($2::text IS NULL OR stage = $2)
ORDER BY address, stage, option
LIMIT $3
