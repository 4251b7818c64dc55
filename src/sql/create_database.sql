-- The statement that makes database $1 text; no row when it is there already. Its locale is C: no index of it ever breaks
-- by an update of the operating system's locales. By the index on pg_database.datname.
SELECT format('CREATE DATABASE %I ENCODING ''UTF8'' LOCALE ''C'' TEMPLATE template0', $1::text)
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = $1::text)
