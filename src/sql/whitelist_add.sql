-- Enters pairs; one that is entered stays as it is. $1 text[]: addresses; $2 text[]: their correspondents; $3 text: what enters
-- them. In the order of the key, so that two of these never wait for each other in a circle.
INSERT INTO pepsi.whitelist (address, correspondent, source)
SELECT DISTINCT p.address COLLATE "C", p.correspondent COLLATE "C", $3::text
FROM unnest($1::text[], $2::text[]) AS p (address, correspondent)
ORDER BY 1, 2
ON CONFLICT (address, correspondent) DO NOTHING
