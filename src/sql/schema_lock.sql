-- One installer at a time, until the transaction ends. The first number is "peps" in ASCII, the second says for what;
-- 1 is the dispatcher's. Then whether a schema is there at all.
SELECT to_regclass('pepsi.schema_version') IS NOT NULL AS is_installed FROM pg_advisory_xact_lock(1885696115, 2)
