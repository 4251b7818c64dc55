-- Which addresses have listed which correspondents. $1 text[]: addresses; $2 text[]: correspondents. By the primary key.
SELECT address, correspondent FROM pepsi.whitelist WHERE address = ANY ($1) AND correspondent = ANY ($2)
