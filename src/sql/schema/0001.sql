-- Patch 0001: all tables, types, and the functions that generated columns rest on.
--
-- Immutable once released: what changes later goes into a patch of the next number. Installed in one transaction with
-- search_path = pg_catalog, so every name of our own is written with its schema. Functions that may change with each
-- release, and all triggers' functions, are in ../procedures.sql.

CREATE SCHEMA pepsi;
COMMENT ON SCHEMA pepsi IS 'The mail pipeline: one row of workqueue a message';

CREATE TABLE pepsi.schema_version (
    patch text COLLATE "C" PRIMARY KEY,
    checksum text NOT NULL,
    installed_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE pepsi.schema_version IS 'What pepsi-setup installed: numbered patches, and the files of functions by name';
COMMENT ON COLUMN pepsi.schema_version.patch IS 'Number of a patch (0001), or name of a file of functions';
COMMENT ON COLUMN pepsi.schema_version.checksum IS 'SHA-256 of the file as it was installed, in hexadecimal';
COMMENT ON COLUMN pepsi.schema_version.installed_at IS 'When this file was last installed';

-- The sender's key (requirement F1). A stored generated column rests on these two functions: they may not fail on any
-- input, and what they yield may not change within a release. They are plpgsql because the expression of a generated column
-- is prepared anew by every statement: expanding SQL functions in it cost 500 us an insert, this costs 10. No EXCEPTION
-- block, which would make a subtransaction of each row.

-- The address of a peer, which is lower case already. A cast to inet is reached by text of the exact grammar that inet
-- takes, no other: eight groups of 1-4 hexadecimal digits, or fewer around one `::`, which stands for one or more; the last
-- two groups may be a dotted quad. Colons are counted for the number of groups, since counted repetitions inside
-- alternatives cost the regular expression engine thirty times as much.
CREATE FUNCTION pepsi.network_key(address text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog
AS $$
DECLARE
    groups CONSTANT text := '(?:(?:[0-9a-f]{1,4}:)*[0-9a-f]{1,4})?';
    quad CONSTANT text := '(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])$';
    colons CONSTANT integer := length(address) - length(replace(address, ':', ''));
    is_ipv6 boolean;
BEGIN
    IF address ~ ('^' || quad) THEN
        RETURN address;
    END IF;
    is_ipv6 := CASE
        WHEN colons < 2 OR octet_length(address) > 45 THEN false
        WHEN address ~ '^(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$' THEN true
        WHEN address ~ ('^' || groups || '::' || groups || '$')
            THEN colons <= CASE WHEN address LIKE '::%' OR address LIKE '%::' THEN 8 ELSE 7 END
        WHEN address ~ ('^(?:[0-9a-f]{1,4}:){6}' || quad) THEN true
        WHEN address ~ ('^' || groups || '::(?:[0-9a-f]{1,4}:)*' || quad)
            THEN colons <= CASE WHEN address LIKE '::%' THEN 7 ELSE 6 END
        ELSE false
    END;
    IF NOT is_ipv6 THEN
        RETURN address;
    ELSIF address::inet <<= '::ffff:0:0/96'::inet THEN
        RETURN host('0.0.0.0'::inet + (address::inet - '::ffff:0:0'::inet));
    END IF;
    RETURN text(network(set_masklen(address::inet, 64)));
END
$$;
COMMENT ON FUNCTION pepsi.network_key(text) IS
    'An IPv4 address as it is, an IPv4-mapped one as IPv4, any other IPv6 address by its /64, other text as it is';

-- Lower case is of ASCII letters alone: the same on every server, whatever its locale. A key stands in a B-tree, whose
-- entries are limited to a third of a page: of a value of more than 200 bytes the last 50 characters count, which of a
-- domain are what its hosts share.
CREATE FUNCTION pepsi.sender_key(state jsonb, mail_from text, rcpt_to text[]) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog
AS $$
DECLARE
    origin CONSTANT jsonb := state -> 'origin';
    kind text;
    value text;
BEGIN
    IF jsonb_typeof(origin -> 'auth_user') = 'string' AND origin ->> 'auth_user' <> '' THEN
        kind := 'user:';
        value := origin ->> 'auth_user';
    ELSIF jsonb_typeof(origin -> 'client_ip') = 'string' AND origin ->> 'client_ip' <> '' THEN
        kind := 'ip:';
        value := pepsi.network_key(lower((origin ->> 'client_ip') COLLATE "C"));
    ELSE
        kind := CASE WHEN mail_from <> '' THEN 'from:' ELSE 'null:' END;
        value := coalesce(nullif(mail_from, ''), rcpt_to[1], '');
        value := CASE WHEN strpos(value, '@') > 0 THEN lower(split_part(value, '@', -1) COLLATE "C") ELSE '' END;
    END IF;
    RETURN kind || CASE WHEN octet_length(value) > 200 THEN right(value, 50) ELSE value END;
END
$$;
COMMENT ON FUNCTION pepsi.sender_key(jsonb, text, text[]) IS 'Whose turn a message counts as (requirement F1); never null, never fails';

CREATE TYPE pepsi.queue_status AS ENUM ('pending', 'running', 'paused', 'failed', 'timeout');
COMMENT ON TYPE pepsi.queue_status IS
    'pending: may be claimed. running: claimed. paused: until its timeout, without one until a person acts. '
    'failed, timeout: for good, until a person acts';

CREATE TABLE pepsi.workqueue_body (
    body_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body bytea NOT NULL
) WITH (
    toast.autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_threshold = 2000,
    toast.autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
COMMENT ON TABLE pepsi.workqueue_body IS 'Message bodies; each is shared by all rows split from one message and goes with the last of them';
COMMENT ON COLUMN pepsi.workqueue_body.body_id IS 'What workqueue.body_id refers to';
COMMENT ON COLUMN pepsi.workqueue_body.body IS 'All octets behind the empty line';

-- Everything that is indexed has the collation C: an update of the operating system's locales breaks none of the indexes, and
-- comparing is cheap.
--
-- Times are of the years 1 to 9999: the dispatcher computes with them, and infinity has no difference to now.
-- What is checked is written out: a function would be expanded anew by every statement.
--
-- Columns of fixed width first: no padding. Each change of status writes the whole row anew, and its entries in every
-- index whose condition holds (status stands in their conditions, so no update is heap-only). So: few indexes; headers out of
-- line where the row would be more than 2 kB (PostgreSQL moves nothing out of a smaller one, whatever toast_tuple_target says;
-- that only decides how much goes); half of each page left free, since a claim rewrites all rows of a page at once, and a new
-- version on the same page costs a quarter less log; and vacuum that comes early and does not rest.
CREATE TABLE pepsi.workqueue (
    workqueue_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    claims bigint NOT NULL DEFAULT 0 CHECK (claims BETWEEN 0 AND 4611686018427387904),
    body_id bigint REFERENCES pepsi.workqueue_body (body_id),
    received_at timestamptz NOT NULL DEFAULT now() CHECK (received_at >= '0001-01-01 00:00:00+00' AND received_at < '10000-01-01 00:00:00+00'),
    timeout timestamptz CHECK (timeout >= '0001-01-01 00:00:00+00' AND timeout < '10000-01-01 00:00:00+00'),
    status pepsi.queue_status NOT NULL DEFAULT 'pending',
    stage text COLLATE "C" NOT NULL DEFAULT 'init' CHECK (octet_length(stage) BETWEEN 1 AND 200),
    token text COLLATE "C" CHECK (octet_length(token) BETWEEN 1 AND 200),
    sender_key text COLLATE "C" NOT NULL GENERATED ALWAYS AS (pepsi.sender_key(state, mail_from, rcpt_to)) STORED,
    mail_from text NOT NULL,
    rcpt_to text[] NOT NULL CHECK (rcpt_to = '{}' OR (array_ndims(rcpt_to) = 1 AND array_position(rcpt_to, NULL) IS NULL)),
    state jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(state) = 'object'),
    header_from text,
    subject text,
    headers bytea NOT NULL
) WITH (
    fillfactor = 50,
    toast_tuple_target = 512,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_threshold = 2000,
    toast.autovacuum_vacuum_cost_delay = 0
);
COMMENT ON TABLE pepsi.workqueue IS 'One row a message on its way; delivered or dropped, its row is deleted';
COMMENT ON COLUMN pepsi.workqueue.workqueue_id IS 'Grows with each row; a smaller one is older';
COMMENT ON COLUMN pepsi.workqueue.claims IS 'How often the row was claimed; whoever writes about a running row gives the number it acts under';
COMMENT ON COLUMN pepsi.workqueue.body_id IS 'Null when the message has no empty line, and so no body';
COMMENT ON COLUMN pepsi.workqueue.received_at IS 'When the message, or the one it was split from, arrived';
COMMENT ON COLUMN pepsi.workqueue.timeout IS 'When a paused row is due; null when a person holds it';
COMMENT ON COLUMN pepsi.workqueue.status IS 'What may happen to the row next; see the type';
COMMENT ON COLUMN pepsi.workqueue.stage IS 'NAME of the [stage-NAME] section that has the message; 1 to 200 octets';
COMMENT ON COLUMN pepsi.workqueue.token IS 'Whatever makes a clone come into being once only; 1 to 200 octets';
COMMENT ON COLUMN pepsi.workqueue.sender_key IS 'Whose turn the message counts as: user:LOGIN, ip:ADDRESS, from:DOMAIN or null:DOMAIN';
COMMENT ON COLUMN pepsi.workqueue.mail_from IS 'Envelope sender; empty for the null sender';
COMMENT ON COLUMN pepsi.workqueue.rcpt_to IS 'Envelope recipients';
COMMENT ON COLUMN pepsi.workqueue.state IS 'What stages tell each other; an object';
COMMENT ON COLUMN pepsi.workqueue.header_from IS 'The From field as found, unfolded; null where there is none';
COMMENT ON COLUMN pepsi.workqueue.subject IS 'The Subject field as found, unfolded; null where there is none';
COMMENT ON COLUMN pepsi.workqueue.headers IS 'All octets before the empty line; message = headers, CRLF, body';

CREATE UNIQUE INDEX workqueue_token ON pepsi.workqueue (token) WHERE token IS NOT NULL;
CREATE INDEX workqueue_pending ON pepsi.workqueue (stage, workqueue_id) WHERE status = 'pending';
CREATE INDEX workqueue_fair ON pepsi.workqueue (stage, sender_key, workqueue_id) WHERE status = 'pending';
CREATE INDEX workqueue_running ON pepsi.workqueue (workqueue_id) WHERE status = 'running';
CREATE INDEX workqueue_due ON pepsi.workqueue (stage, timeout) WHERE status = 'paused' AND timeout IS NOT NULL;
CREATE INDEX workqueue_body_ref ON pepsi.workqueue (body_id) WHERE body_id IS NOT NULL;
COMMENT ON INDEX pepsi.workqueue_pending IS 'Claims: the oldest rows of a stage';
COMMENT ON INDEX pepsi.workqueue_fair IS 'Fair claims: the senders that wait at a stage, and the oldest rows of each';
COMMENT ON INDEX pepsi.workqueue_running IS 'Reconciling after a start or a reconnect';
COMMENT ON INDEX pepsi.workqueue_due IS 'Sweeping paused rows that are due, stage by stage';
COMMENT ON INDEX pepsi.workqueue_body_ref IS 'Whether a body is still in use';

-- lz4 costs next to nothing and halves what is written; servers are built with it as a rule, not always.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
        ALTER TABLE pepsi.workqueue ALTER headers SET COMPRESSION lz4, ALTER state SET COMPRESSION lz4;
        ALTER TABLE pepsi.workqueue_body ALTER body SET COMPRESSION lz4;
    END IF;
END
$$;

-- Statistics: written by the dispatcher alone (requirement K1), so that no worker waits for a row of these.
CREATE TABLE pepsi.stage_stats (
    stage text COLLATE "C" PRIMARY KEY CHECK (octet_length(stage) BETWEEN 1 AND 200),
    messages bigint NOT NULL DEFAULT 0,
    processing_us bigint NOT NULL DEFAULT 0,
    timeouts bigint NOT NULL DEFAULT 0,
    crashes bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE pepsi.stage_stats IS 'Per stage, since installation; best effort, what was not flushed is lost with the dispatcher';
COMMENT ON COLUMN pepsi.stage_stats.stage IS 'NAME of the [stage-NAME] section';
COMMENT ON COLUMN pepsi.stage_stats.messages IS 'Messages the stage has worked on, fused passes included';
COMMENT ON COLUMN pepsi.stage_stats.processing_us IS 'Time spent on them, microseconds';
COMMENT ON COLUMN pepsi.stage_stats.timeouts IS 'Workers killed after MAX_RUNTIME';
COMMENT ON COLUMN pepsi.stage_stats.crashes IS 'Workers that died over a message';

CREATE TABLE pepsi.dispatch_stats (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    stages_executed bigint NOT NULL DEFAULT 0,
    messages_finished bigint NOT NULL DEFAULT 0,
    messages_failed bigint NOT NULL DEFAULT 0,
    serialization_failures bigint NOT NULL DEFAULT 0,
    unserved bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO pepsi.dispatch_stats DEFAULT VALUES;
COMMENT ON TABLE pepsi.dispatch_stats IS 'Of the whole pipeline, since installation: one row';
COMMENT ON COLUMN pepsi.dispatch_stats.only_row IS 'Always true: keeps it at one row';
COMMENT ON COLUMN pepsi.dispatch_stats.stages_executed IS 'Passes of a worker; a fused chain is one';
COMMENT ON COLUMN pepsi.dispatch_stats.messages_finished IS 'Messages that left the queue';
COMMENT ON COLUMN pepsi.dispatch_stats.messages_failed IS 'Messages that became failed or timeout; zero in a healthy run';
COMMENT ON COLUMN pepsi.dispatch_stats.serialization_failures IS 'Serialization failures and deadlocks met; zero in a healthy run';
COMMENT ON COLUMN pepsi.dispatch_stats.unserved IS
    'Messages that wait at stages without a section, as the dispatcher last saw them; at most 1000 of a stage are counted';

CREATE TABLE pepsi.config_override (
    scope text COLLATE "C" NOT NULL CHECK (octet_length(scope) <= 400 AND (scope = 'global' OR scope LIKE 'domain:_%' OR scope LIKE 'address:_%')),
    section text COLLATE "C" NOT NULL CHECK (octet_length(section) BETWEEN 1 AND 220),
    option text COLLATE "C" NOT NULL CHECK (octet_length(option) BETWEEN 1 AND 200),
    value text NOT NULL
);
CREATE UNIQUE INDEX config_override_key ON pepsi.config_override (scope, lower(section), lower(option));
COMMENT ON TABLE pepsi.config_override IS 'Laid over the configuration file; every change notifies config_changed';
COMMENT ON COLUMN pepsi.config_override.scope IS 'global, domain:DOMAIN or address:ADDRESS';
COMMENT ON COLUMN pepsi.config_override.section IS 'Section of the file, such as stage-init, in any case';
COMMENT ON COLUMN pepsi.config_override.option IS 'Option of that section, in any case';
COMMENT ON COLUMN pepsi.config_override.value IS 'As it would stand in the file';

CREATE TABLE pepsi.settings (
    address text COLLATE "C" NOT NULL CHECK (octet_length(address) BETWEEN 1 AND 400),
    stage text COLLATE "C" NOT NULL CHECK (octet_length(stage) BETWEEN 1 AND 200),
    option text COLLATE "C" NOT NULL CHECK (octet_length(option) BETWEEN 1 AND 200),
    value text NOT NULL,
    PRIMARY KEY (address, stage, option)
);
COMMENT ON TABLE pepsi.settings IS 'What the owner of an address has set for single stages';
COMMENT ON COLUMN pepsi.settings.address IS 'Mail address in lower case';
COMMENT ON COLUMN pepsi.settings.stage IS 'NAME of the [stage-NAME] section';
COMMENT ON COLUMN pepsi.settings.option IS 'Option of that section';
COMMENT ON COLUMN pepsi.settings.value IS 'As it would stand in the file';

CREATE TABLE pepsi.whitelist (
    address text COLLATE "C" NOT NULL CHECK (octet_length(address) BETWEEN 1 AND 400),
    correspondent text COLLATE "C" NOT NULL CHECK (octet_length(correspondent) BETWEEN 1 AND 400),
    source text NOT NULL DEFAULT 'manual',
    added_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (address, correspondent)
);
COMMENT ON TABLE pepsi.whitelist IS 'Whose mail an address takes without questions';
COMMENT ON COLUMN pepsi.whitelist.address IS 'Our address, in lower case';
COMMENT ON COLUMN pepsi.whitelist.correspondent IS 'The other address in lower case, or @DOMAIN';
COMMENT ON COLUMN pepsi.whitelist.source IS 'What entered it: manual, or the name of a stage';
COMMENT ON COLUMN pepsi.whitelist.added_at IS 'When it was entered first';

CREATE TABLE pepsi.alias (
    map text COLLATE "C" NOT NULL CHECK (octet_length(map) BETWEEN 1 AND 200),
    address text COLLATE "C" NOT NULL CHECK (octet_length(address) BETWEEN 1 AND 400),
    targets text[] NOT NULL CHECK (cardinality(targets) > 0 AND array_ndims(targets) = 1 AND array_position(targets, NULL) IS NULL),
    PRIMARY KEY (map, address)
);
COMMENT ON TABLE pepsi.alias IS 'Alias maps: what stands for an address; read for each message, so a change counts at once';
COMMENT ON COLUMN pepsi.alias.map IS 'Name of the map, as a stage of aliases asks for it';
COMMENT ON COLUMN pepsi.alias.address IS 'Address in lower case, or its local part alone, or @DOMAIN';
COMMENT ON COLUMN pepsi.alias.targets IS 'What it stands for, at least one: each as a line of a map file would have it';

CREATE TABLE pepsi.event_log (
    event_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    happened_at timestamptz NOT NULL DEFAULT now(),
    principal text NOT NULL DEFAULT session_user,
    action text NOT NULL,
    target text NOT NULL DEFAULT '',
    detail jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX event_log_time ON pepsi.event_log (happened_at);
COMMENT ON TABLE pepsi.event_log IS 'Who changed what; rows are added, never changed';
COMMENT ON COLUMN pepsi.event_log.event_id IS 'Grows with each event';
COMMENT ON COLUMN pepsi.event_log.happened_at IS 'When the transaction that changed it began';
COMMENT ON COLUMN pepsi.event_log.action IS 'What was done, one word such as set or delete';
COMMENT ON COLUMN pepsi.event_log.detail IS 'More, by key; never a secret';
COMMENT ON COLUMN pepsi.event_log.principal IS 'Role of the database, or whoever the program acted for';
COMMENT ON COLUMN pepsi.event_log.target IS 'What was acted on: an option, an address, the id of a message';

CREATE TABLE pepsi.mail_log (
    log_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    logged_at timestamptz NOT NULL DEFAULT now(),
    workqueue_id bigint NOT NULL,
    stage text NOT NULL,
    outcome text NOT NULL,
    mail_from text NOT NULL,
    rcpt_to text[] NOT NULL,
    detail text
);
CREATE INDEX mail_log_time ON pepsi.mail_log (logged_at);
COMMENT ON TABLE pepsi.mail_log IS 'Who wrote to whom; kept only where [pepsi] MAIL_LOG asks for it';
COMMENT ON COLUMN pepsi.mail_log.log_id IS 'Grows with each entry';
COMMENT ON COLUMN pepsi.mail_log.logged_at IS 'When it happened';
COMMENT ON COLUMN pepsi.mail_log.stage IS 'NAME of the [stage-NAME] section where it happened';
COMMENT ON COLUMN pepsi.mail_log.outcome IS 'One word: received, delivered, bounced, failed, discarded';
COMMENT ON COLUMN pepsi.mail_log.mail_from IS 'Envelope sender; empty for the null sender';
COMMENT ON COLUMN pepsi.mail_log.rcpt_to IS 'Envelope recipients that it is about';
COMMENT ON COLUMN pepsi.mail_log.detail IS 'More, such as the reply of the next host';
COMMENT ON COLUMN pepsi.mail_log.workqueue_id IS 'The message, whose row may be gone';

CREATE TABLE pepsi.dns_address (
    host text COLLATE "C" NOT NULL CHECK (octet_length(host) BETWEEN 1 AND 255),
    address inet NOT NULL,
    expires_at timestamptz NOT NULL,
    last_success timestamptz,
    last_failure timestamptz,
    failures integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    PRIMARY KEY (host, address)
);
COMMENT ON TABLE pepsi.dns_address IS 'Addresses of mail hosts, and how connecting to each went';
COMMENT ON COLUMN pepsi.dns_address.host IS 'Name of the mail host in lower case';
COMMENT ON COLUMN pepsi.dns_address.address IS 'One of its addresses';
COMMENT ON COLUMN pepsi.dns_address.last_success IS 'When a connect last succeeded; null: never';
COMMENT ON COLUMN pepsi.dns_address.last_failure IS 'When a connect last failed; null: never';
COMMENT ON COLUMN pepsi.dns_address.expires_at IS 'When the answer of the name service runs out';
COMMENT ON COLUMN pepsi.dns_address.failures IS 'Failed connects since the last that succeeded';
