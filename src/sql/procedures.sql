-- Functions and triggers of this release, installed anew by every run of `pepsi-setup schema`.
--
-- Who notifies: a queued notification holds a lock of the whole cluster until its transaction ends, so the writers inside
-- the dispatcher's loop and the admission of a message stay silent. workqueue_inject and workqueue_resume notify, since
-- they are called from outside it. The payload is always empty, and equal notifications of a transaction collapse.
--
-- Fencing: whoever acts for a claimed row passes id AND claim; a row that is no longer running under that claim is left
-- alone, and the caller is told by null or false.
--
-- A function whose arguments or result change is dropped by the patch of that release; CREATE OR REPLACE does the rest.

-- Admission

-- From escaped octets to text: encode(.., 'escape') leaves printable octets and line ends as they are, doubles a backslash
-- and writes NUL and all above 127 as \ooo. `escaped` begins behind the colon of a header field and is cut somewhere.
-- Returns that field's body, unfolded. What is not UTF-8 is read as Latin-1; NUL, which text cannot hold, is dropped.
CREATE OR REPLACE FUNCTION pepsi.header_value(escaped text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog
AS $$
DECLARE
    field text := substring(escaped FROM '^(?:[^\n]|\n[ \t])*');
    is_cut CONSTANT boolean := length(field) = length(escaped);
BEGIN
    field := btrim(replace(replace(field, E'\r\n', ''), E'\n', ''), E' \t\r');
    IF strpos(field, '\') = 0 THEN
        RETURN field;
    END IF;
    -- Now every backslash begins \ooo, and NUL can be told from a backslash followed by 000.
    field := replace(replace(field, '\\', '\134'), '\000', '');
    IF is_cut THEN
        -- Half an escape, then half a character.
        field := regexp_replace(regexp_replace(field, '\\[0-7]{0,2}$', ''), '\\3[0-7]{2}(?:\\2[0-7]{2}){0,3}$', '');
    END IF;
    BEGIN
        RETURN convert_from(decode(field, 'escape'), 'UTF8');
    EXCEPTION WHEN character_not_in_repertoire THEN
        RETURN convert_from(decode(field, 'escape'), 'LATIN1');
    END;
END
$$;
COMMENT ON FUNCTION pepsi.header_value(text) IS 'The body of a header field as text, out of escaped octets';

-- The body of the header field `name`, at most 1024 octets of it; null where there is no such field. `block` is a line end
-- and then the header. Never fails. The usual spelling is searched as bytes; any other costs twenty times as much.
CREATE OR REPLACE FUNCTION pepsi.header_field(block bytea, name text) RETURNS text
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog
AS $$
DECLARE
    place integer := position(convert_to(E'\n' || name || ':', 'UTF8') IN block);
BEGIN
    IF place > 0 THEN
        RETURN pepsi.header_value(encode(substring(block FROM place + length(name) + 2 FOR 1024), 'escape'));
    END IF;
    RETURN pepsi.header_value(left(substring(encode(block, 'escape') FROM '(?i)\n' || name || '[ \t]*:(.*)'), 1024));
END
$$;
COMMENT ON FUNCTION pepsi.header_field(bytea, text) IS 'The body of a header field as text; null where there is none';

-- Stores one message and returns its id, without a notification. `headers` are all octets before the empty line, `body`
-- all behind it, null where there is no empty line. From and Subject are looked for in the first 256 KiB of the header.
CREATE OR REPLACE FUNCTION pepsi.workqueue_add(
    mail_from text, rcpt_to text[], headers bytea, body bytea, state jsonb DEFAULT '{}', stage text DEFAULT 'init'
) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog
AS $$
DECLARE
    block CONSTANT bytea := '\x0a'::bytea || substring(headers FROM 1 FOR 262144);
    new_body bigint;
    new_id bigint;
BEGIN
    IF body IS NOT NULL THEN
        INSERT INTO pepsi.workqueue_body (body) VALUES (workqueue_add.body) RETURNING body_id INTO new_body;
    END IF;
    INSERT INTO pepsi.workqueue (stage, state, mail_from, rcpt_to, header_from, subject, headers, body_id)
    VALUES (workqueue_add.stage, workqueue_add.state, workqueue_add.mail_from, workqueue_add.rcpt_to,
            pepsi.header_field(block, 'From'), pepsi.header_field(block, 'Subject'), workqueue_add.headers, new_body)
    RETURNING workqueue_id INTO new_id;
    RETURN new_id;
END
$$;
COMMENT ON FUNCTION pepsi.workqueue_add(text, text[], bytea, bytea, jsonb, text) IS 'Stores one message, silently; returns its id';

-- As workqueue_add, and wakes the dispatcher.
CREATE OR REPLACE FUNCTION pepsi.workqueue_inject(
    mail_from text, rcpt_to text[], headers bytea, body bytea, state jsonb DEFAULT '{}', stage text DEFAULT 'init'
) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog
AS $$
BEGIN
    PERFORM pg_notify('workqueue', '');
    RETURN pepsi.workqueue_add(mail_from, rcpt_to, headers, body, state, stage);
END
$$;
COMMENT ON FUNCTION pepsi.workqueue_inject(text, text[], bytea, bytea, jsonb, text) IS
    'Stores one message and wakes the dispatcher; returns its id';

-- Repair

-- Takes a paused, failed or timed-out row up again at its stage, and wakes the dispatcher. What is recorded of its failures,
-- and that it was held, is removed in the same update: it starts afresh. False where there is no such row.
CREATE OR REPLACE FUNCTION pepsi.workqueue_resume(id bigint) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog
AS $$
BEGIN
    UPDATE pepsi.workqueue
    SET status = 'pending',
        timeout = NULL,
        state = state - '{strikes,temporary_failures,last_error,failure_class,failed_stage,dispatch_error,held}'::text[]
    WHERE workqueue_id = id AND status IN ('paused', 'failed', 'timeout');
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_notify('workqueue', '');
    RETURN true;
END
$$;
COMMENT ON FUNCTION pepsi.workqueue_resume(bigint) IS 'A paused, failed or timed-out row becomes pending; wakes the dispatcher';

-- Fan-out

-- Makes rows out of one row: same headers, same shared body, all in one statement on the server. `specs` is an array of
-- objects, one a new row:
--   rcpt_to    array of text, needed
--   mail_from  text; as the source if missing
--   stage      text; as the source if missing
--   state      object, merged into a copy of the source's state
--   status     pending (if missing), paused or failed; no other
--   pause_us   microseconds from now until a paused row is due; without it a person must act
--   token      text; a row with this token in the queue makes this one not come into being
--   fresh      true: a message of its own (a DSN), whose time of arrival is now. Else the source's time is kept
-- At another stage than the source's the copy has no strikes, temporary_failures and last_error. Returns the new ids in
-- the order of `specs`, without those that a token kept away. The caller has locked the source.
CREATE OR REPLACE FUNCTION pepsi.workqueue_spawn(source bigint, specs jsonb) RETURNS bigint[]
    LANGUAGE plpgsql SET search_path = pg_catalog
AS $$
DECLARE
    ids bigint[];
BEGIN
    WITH spec AS (
        SELECT ordinality AS place, value AS spec FROM jsonb_array_elements(specs) WITH ORDINALITY
    ), added AS (
        INSERT INTO pepsi.workqueue
            (body_id, received_at, timeout, status, stage, token, mail_from, rcpt_to, state, header_from, subject, headers)
        SELECT w.body_id,
               CASE WHEN spec -> 'fresh' = 'true' THEN now() ELSE w.received_at END,
               CASE WHEN spec ->> 'status' = 'paused'
                   THEN now() + (spec ->> 'pause_us')::bigint * interval '1 microsecond' END,
               -- Any other word gives null, which the column refuses: only a claim makes a row running.
               CASE coalesce(spec ->> 'status', 'pending')
                   WHEN 'pending' THEN 'pending' WHEN 'paused' THEN 'paused' WHEN 'failed' THEN 'failed'
               END::pepsi.queue_status,
               coalesce(spec ->> 'stage', w.stage),
               spec ->> 'token',
               coalesce(spec ->> 'mail_from', w.mail_from),
               ARRAY(SELECT jsonb_array_elements_text(spec -> 'rcpt_to')),
               CASE WHEN coalesce(spec ->> 'stage', w.stage) = w.stage THEN w.state
                   ELSE w.state - '{strikes,temporary_failures,last_error}'::text[]
               END || coalesce(spec -> 'state', '{}'),
               w.header_from, w.subject, w.headers
        FROM pepsi.workqueue w CROSS JOIN spec
        WHERE w.workqueue_id = source
        ORDER BY place
        ON CONFLICT (token) WHERE token IS NOT NULL DO NOTHING
        RETURNING workqueue_id
    )
    SELECT coalesce(array_agg(workqueue_id ORDER BY workqueue_id), '{}') INTO ids FROM added;
    RETURN ids;
END
$$;
COMMENT ON FUNCTION pepsi.workqueue_spawn(bigint, jsonb) IS 'New rows that share the headers and body of one; see procedures.sql for the fields';

-- Splits recipients off a claimed row. The row stays running with the recipients `keep` and `state || keep_state`; each of
-- `groups` (see workqueue_spawn) becomes a row. Returns the new ids; null when the claim is gone, and nothing was changed.
CREATE OR REPLACE FUNCTION pepsi.workqueue_split(
    id bigint, claim bigint, keep text[], groups jsonb, keep_state jsonb DEFAULT '{}'
) RETURNS bigint[]
    LANGUAGE plpgsql SET search_path = pg_catalog
AS $$
DECLARE
    ids bigint[];
BEGIN
    PERFORM FROM pepsi.workqueue WHERE workqueue_id = id AND claims = claim AND status = 'running' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    ids := pepsi.workqueue_spawn(id, groups);
    UPDATE pepsi.workqueue SET rcpt_to = keep, state = state || keep_state WHERE workqueue_id = id;
    RETURN ids;
END
$$;
COMMENT ON FUNCTION pepsi.workqueue_split(bigint, bigint, text[], jsonb, jsonb) IS 'Moves recipients of a claimed row to rows of their own';

-- Ends what a worker does with a claimed row, all in one: the rows that it leaves beside it, and where it goes itself.
--   status     running: it stays claimed. pending: it waits at `stage`. paused: for `pause_us` microseconds (null: until a
--              person acts). failed. finished: it is deleted
--   stage      null where it stays; at another stage it has no strikes, temporary_failures and last_error
--   merge      laid over the state
--   keep       the recipients that are left; null: all
--   groups     rows with its headers and body, see workqueue_spawn; made before anything of it changes
--   sides      messages of their own, objects with mail_from, rcpt_to, state and stage; their headers and bodies, in the same
--              order, in the two arrays behind
-- False when the claim is gone, and nothing was changed.
CREATE OR REPLACE FUNCTION pepsi.workqueue_conclude(
    id bigint, claim bigint, status text, stage text, pause_us bigint, merge jsonb, keep text[] DEFAULT NULL,
    groups jsonb DEFAULT '[]', sides jsonb DEFAULT '[]', side_headers bytea[] DEFAULT '{}', side_bodies bytea[] DEFAULT '{}'
) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog
AS $$
BEGIN
    PERFORM FROM pepsi.workqueue q WHERE q.workqueue_id = id AND q.claims = claim AND q.status = 'running' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pepsi.workqueue_spawn(id, groups);
    PERFORM pepsi.workqueue_add(
        side ->> 'mail_from', ARRAY(SELECT jsonb_array_elements_text(side -> 'rcpt_to')), side_headers[place], side_bodies[place],
        side -> 'state', side ->> 'stage')
    FROM jsonb_array_elements(sides) WITH ORDINALITY AS s (side, place);
    IF workqueue_conclude.status = 'finished' THEN
        DELETE FROM pepsi.workqueue q WHERE q.workqueue_id = id;
        RETURN true;
    END IF;
    UPDATE pepsi.workqueue q
    SET status = workqueue_conclude.status::pepsi.queue_status,
        stage = coalesce(workqueue_conclude.stage, q.stage),
        timeout = CASE WHEN workqueue_conclude.status = 'paused' THEN now() + pause_us * interval '1 microsecond' END,
        state = CASE WHEN workqueue_conclude.stage IS NULL THEN q.state
            ELSE q.state - '{strikes,temporary_failures,last_error}'::text[]
        END || merge,
        rcpt_to = coalesce(keep, q.rcpt_to)
    WHERE q.workqueue_id = id;
    RETURN true;
END
$$;
COMMENT ON FUNCTION pepsi.workqueue_conclude(bigint, bigint, text, text, bigint, jsonb, text[], jsonb, jsonb, bytea[], bytea[]) IS
    'Where a claimed row goes, and the rows that it leaves beside it; see procedures.sql';

-- Pauses a claimed row at its stage for `pause_us` microseconds (null: until a person acts) with `state || merge`, keeps
-- only the recipients `keep` (null: all), and adds `clones` (see workqueue_spawn). False when the claim is gone.
CREATE OR REPLACE FUNCTION pepsi.workqueue_pause(
    id bigint, claim bigint, merge jsonb, pause_us bigint, keep text[] DEFAULT NULL, clones jsonb DEFAULT '[]'
) RETURNS boolean
    LANGUAGE sql SET search_path = pg_catalog
AS $$
    SELECT pepsi.workqueue_conclude(id, claim, 'paused', NULL, pause_us, merge, keep, clones)
$$;
COMMENT ON FUNCTION pepsi.workqueue_pause(bigint, bigint, jsonb, bigint, text[], jsonb) IS
    'Pauses a claimed row, with fewer recipients and clones where asked';

-- Deletes a claimed row and adds `clones` (see workqueue_spawn). False when the claim is gone.
CREATE OR REPLACE FUNCTION pepsi.workqueue_finish_with_clones(id bigint, claim bigint, clones jsonb) RETURNS boolean
    LANGUAGE sql SET search_path = pg_catalog
AS $$
    SELECT pepsi.workqueue_conclude(id, claim, 'finished', NULL, NULL, '{}', NULL, clones)
$$;
COMMENT ON FUNCTION pepsi.workqueue_finish_with_clones(bigint, bigint, jsonb) IS 'Ends a claimed row and leaves clones';

-- Bodies

-- Deletes the body of a row that went, or that took another body, unless a row still refers to it. A body that somebody is
-- about to refer to is locked by the foreign key, and skipped. When the last two rows of a body go at once, each may see
-- the other and leave it: workqueue_body_gc collects it.
CREATE OR REPLACE FUNCTION pepsi.workqueue_release_body() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog
AS $$
BEGIN
    DELETE FROM pepsi.workqueue_body
    WHERE body_id = (
        SELECT b.body_id FROM pepsi.workqueue_body b
        WHERE b.body_id = OLD.body_id AND NOT EXISTS (SELECT FROM pepsi.workqueue w WHERE w.body_id = OLD.body_id)
        FOR UPDATE SKIP LOCKED
    );
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION pepsi.workqueue_release_body() IS 'A body goes with the last row that refers to it';

CREATE OR REPLACE TRIGGER workqueue_release_body_on_delete AFTER DELETE ON pepsi.workqueue
    FOR EACH ROW WHEN (OLD.body_id IS NOT NULL) EXECUTE FUNCTION pepsi.workqueue_release_body();
CREATE OR REPLACE TRIGGER workqueue_release_body_on_update AFTER UPDATE OF body_id ON pepsi.workqueue
    FOR EACH ROW WHEN (OLD.body_id IS NOT NULL AND OLD.body_id IS DISTINCT FROM NEW.body_id)
    EXECUTE FUNCTION pepsi.workqueue_release_body();

-- Deletes bodies that no row refers to, at most `max_bodies`; returns how many. It looks at no more than twice as many
-- bodies a call, so that a deep queue does not make the sweep long, and goes on from there at the next call of the same
-- session (kept in a setting of that session: nothing is written for it).
CREATE OR REPLACE FUNCTION pepsi.workqueue_body_gc(max_bodies integer DEFAULT 10000) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog
AS $$
DECLARE
    window_size CONSTANT bigint := 2 * greatest(max_bodies, 0)::bigint;
    after bigint := coalesce(nullif(current_setting('pepsi.body_gc_after', true), '')::bigint, 0);
    last bigint;
    seen bigint;
    deleted bigint;
BEGIN
    SELECT max(body_id), count(*) INTO last, seen
    FROM (SELECT body_id FROM pepsi.workqueue_body WHERE body_id > after ORDER BY body_id LIMIT window_size) AS looked_at;
    DELETE FROM pepsi.workqueue_body
    WHERE body_id = ANY (ARRAY(
        SELECT b.body_id FROM pepsi.workqueue_body b
        WHERE b.body_id > after AND b.body_id <= last
          AND NOT EXISTS (SELECT FROM pepsi.workqueue w WHERE w.body_id = b.body_id)
        ORDER BY b.body_id LIMIT max_bodies
        FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS deleted = ROW_COUNT;
    IF deleted < max_bodies THEN
        PERFORM set_config('pepsi.body_gc_after', CASE WHEN seen < window_size THEN 0 ELSE last END::text, false);
    END IF;
    RETURN deleted;
END
$$;
COMMENT ON FUNCTION pepsi.workqueue_body_gc(integer) IS 'Deletes bodies that no row refers to; returns how many';

-- Other tables

CREATE OR REPLACE FUNCTION pepsi.config_override_changed() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog
AS $$
BEGIN
    PERFORM pg_notify('config_changed', '');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION pepsi.config_override_changed() IS 'Tells the dispatcher that the configuration changed';

CREATE OR REPLACE TRIGGER config_override_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON pepsi.config_override
    FOR EACH STATEMENT EXECUTE FUNCTION pepsi.config_override_changed();

CREATE OR REPLACE FUNCTION pepsi.event_log_is_append_only() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog
AS $$
BEGIN
    RAISE EXCEPTION 'pepsi.event_log is append-only' USING ERRCODE = 'insufficient_privilege';
END
$$;
COMMENT ON FUNCTION pepsi.event_log_is_append_only() IS 'Refuses every change of what was logged';

CREATE OR REPLACE TRIGGER event_log_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON pepsi.event_log
    FOR EACH STATEMENT EXECUTE FUNCTION pepsi.event_log_is_append_only();
