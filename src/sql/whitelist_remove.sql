-- Takes correspondents of an address away. $1 text: the address; $2 text[]: the correspondents, null for all of them; $3 bigint: at
-- most so many. By the primary key.
DELETE FROM pepsi.whitelist w
USING (SELECT d.address, d.correspondent
       FROM pepsi.whitelist d
       WHERE d.address = $1 AND ($2::text[] IS NULL OR d.correspondent = ANY ($2))
       LIMIT $3) found
WHERE w.address = found.address AND w.correspondent = found.correspondent
