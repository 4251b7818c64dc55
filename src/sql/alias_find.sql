-- Entries of an alias map. $1 text: the map; $2 text[]: addresses. By the primary key.
SELECT address, targets FROM pepsi.alias WHERE map = $1 AND address = ANY ($2)
