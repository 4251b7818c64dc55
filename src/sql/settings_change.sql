-- Changes what an address has set. $1 text: address; one element a change: $2 text[]: stages; $3 text[]: options; $4 text[]:
-- values, null to take it back. Of changes of the same option the last counts. Returns how many rows were set or deleted. By
-- the primary key.
WITH asked AS (
    SELECT DISTINCT ON (c.stage COLLATE "C", c.option COLLATE "C") c.stage COLLATE "C" AS stage, c.option COLLATE "C" AS option, c.value
    FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS c (stage, option, value, place)
    ORDER BY c.stage COLLATE "C", c.option COLLATE "C", c.place DESC
), unset AS (
    DELETE FROM pepsi.settings s USING asked a
    WHERE s.address = $1 AND s.stage = a.stage AND s.option = a.option AND a.value IS NULL
    RETURNING 1
), set AS (
    INSERT INTO pepsi.settings (address, stage, option, value)
    SELECT $1, a.stage, a.option, a.value FROM asked a WHERE a.value IS NOT NULL
    ON CONFLICT (address, stage, option) DO UPDATE SET value = excluded.value
    RETURNING 1
)
SELECT (SELECT count(*) FROM unset) + (SELECT count(*) FROM set) AS changed
