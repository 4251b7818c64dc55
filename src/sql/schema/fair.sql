-- The fair claim (requirements W3, W7, F3, F6, F7, F8): which waiting rows fill the stages' spare capacity, and the write that
-- takes them. docs/fairness.md tells the algorithm; the model that this must agree with is `choose` in
-- src/dispatch/machine/fair/choose.rs.
--
-- Each statement is one range of an index, and ORDER BY names all of its columns before a LIMIT: then no estimate can turn it
-- into a walk along another index. Stages and senders are compared as ranges for the same reason; rows are looked up by id
-- with a status that IS TRUE, which does not fit the condition of a partial index. No range begins before
-- what the dispatcher has seen the end of (floors, marks), so that dead entries, which stay while any session holds an old
-- snapshot, are passed once and not by every claim.

-- What a claim would take, and what it sees on its way. Reads only; runs under the settings of workqueue_claim_fair.
-- Arguments as there; `excluded`: ids that are passed over.
-- Returns, in any order: take - the rows of a stage to take, as `ids`; seen - a row that waits and is not taken; floor - the
-- oldest row of a stage that is not taken, missing where all were; mark - where the next reading of new rows begins, missing
-- where there were none; cursor - the last sender visited, missing where no more may follow; due - the microseconds until the
-- first of the touched rows is due that are paused at one of the stages, missing without such a row.
CREATE OR REPLACE FUNCTION pepsi.workqueue_look_fair(
    stages text[], capacities integer[], fifo_slots integer[], averages_us bigint[], floors bigint[], marks bigint[],
    visits integer[], cursors text[], unlisted_us bigint[],
    sender_stages integer[], senders text[], leads_us bigint[], sender_floors bigint[], sender_rows integer[],
    touched bigint[], excluded bigint[]
) RETURNS TABLE (kind text, at_stage text, id bigint, sender text, ids bigint[])
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog
AS $$
DECLARE
    -- At most so many new rows are read for senders that are not known yet.
    fresh_limit CONSTANT integer := 32;
    -- The greatest id there can be: the end of a stage's range.
    last_id CONSTANT bigint := 9223372036854775807;
    moved_ids bigint[] := '{}'; moved_stages text[]; moved_senders text[]; first_due timestamptz;
    this text COLLATE "C"; capacity integer; slots integer; average bigint; bottom bigint;
    -- The stage's oldest rows, one more than its capacity; of these the first go to the FIFO slots.
    old_ids bigint[]; old_senders text[]; fifo_ids bigint[];
    -- Rows that tell of senders which the dispatcher may not know.
    found_ids bigint[]; found_senders text[]; found_id bigint; visited text COLLATE "C";
    -- Listed senders of this stage: those that are thought to wait have a floor.
    listed text[]; listed_leads bigint[]; listed_floors bigint[]; listed_rows integer[];
    -- Candidates of senders that are not thought to wait.
    new_ids bigint[]; new_senders text[]; new_ranks bigint[];
    -- All candidates, best first, and all that is taken.
    best_ids bigint[]; best_senders text[]; taken bigint[];
    place integer; last_place integer;
BEGIN
    IF cardinality(touched) > 0 THEN
        SELECT coalesce(array_agg(w.workqueue_id) FILTER (WHERE w.status = 'pending'), '{}'),
               array_agg(w.stage) FILTER (WHERE w.status = 'pending'),
               array_agg(w.sender_key) FILTER (WHERE w.status = 'pending'),
               min(w.timeout) FILTER (WHERE w.status = 'paused')
        INTO moved_ids, moved_stages, moved_senders, first_due
        FROM pepsi.workqueue w
        WHERE w.workqueue_id = ANY (touched) AND w.stage = ANY (stages) AND w.workqueue_id <> ALL (excluded);
        IF first_due IS NOT NULL THEN
            kind := 'due'; id := extract(epoch FROM first_due - now()) * 1000000;
            RETURN NEXT;
        END IF;
        kind := 'seen';
        FOR j IN 1 .. cardinality(moved_ids) LOOP
            id := moved_ids[j]; at_stage := moved_stages[j]; sender := moved_senders[j];
            RETURN NEXT;
        END LOOP;
    END IF;

    FOR i IN 1 .. cardinality(stages) LOOP
        capacity := least(capacities[i], 1000000);
        CONTINUE WHEN capacity <= 0;
        this := stages[i]; at_stage := this;
        bottom := floors[i];
        FOR j IN 1 .. cardinality(moved_ids) LOOP
            IF moved_stages[j] = this THEN
                bottom := least(bottom, moved_ids[j]);
            END IF;
        END LOOP;

        SELECT array_agg(o.id), array_agg(o.sender) INTO old_ids, old_senders
        FROM (
            SELECT w.workqueue_id AS id, w.sender_key AS sender
            FROM pepsi.workqueue w
            WHERE w.status = 'pending' AND (w.stage, w.workqueue_id) >= (this, bottom)
              AND (w.stage, w.workqueue_id) <= (this, last_id) AND w.workqueue_id <> ALL (excluded)
            ORDER BY w.stage, w.workqueue_id
            LIMIT capacity + 1
        ) AS o;
        CONTINUE WHEN old_ids IS NULL;
        slots := capacity - fifo_slots[i];
        IF cardinality(old_ids) <= capacity OR slots <= 0 THEN
            -- Room for all, or nothing but FIFO slots.
            kind := 'take'; id := NULL; sender := NULL; ids := old_ids[:capacity];
            RETURN NEXT;
            ids := NULL;
            IF cardinality(old_ids) > capacity THEN
                kind := 'floor'; id := old_ids[capacity + 1];
                RETURN NEXT;
            END IF;
            CONTINUE;
        END IF;

        -- More waits than there is room for. The new rows may be of new senders.
        bottom := marks[i];
        SELECT coalesce(array_agg(f.id), '{}'), coalesce(array_agg(f.sender), '{}') INTO found_ids, found_senders
        FROM (
            SELECT w.workqueue_id AS id, w.sender_key AS sender
            FROM pepsi.workqueue w
            WHERE w.status = 'pending' AND (w.stage, w.workqueue_id) >= (this, bottom)
              AND (w.stage, w.workqueue_id) <= (this, last_id) AND w.workqueue_id <> ALL (excluded)
            ORDER BY w.stage, w.workqueue_id
            LIMIT fresh_limit
        ) AS f;
        IF cardinality(found_ids) > 0 THEN
            kind := 'mark'; id := found_ids[cardinality(found_ids)] + 1; sender := NULL;
            RETURN NEXT;
        END IF;
        -- A loose index scan visits the next senders in the order of their keys: one probe each, however much each has.
        visited := cursors[i];
        FOR visit IN 1 .. visits[i] LOOP
            SELECT w.sender_key, w.workqueue_id INTO visited, found_id
            FROM pepsi.workqueue w
            WHERE w.status = 'pending' AND w.stage = this AND w.sender_key > visited
              AND w.workqueue_id <> ALL (excluded)
            ORDER BY w.sender_key, w.workqueue_id
            LIMIT 1;
            EXIT WHEN NOT FOUND;
            found_ids := found_ids || found_id;
            found_senders := found_senders || visited;
            IF visit = visits[i] THEN
                kind := 'cursor'; id := NULL; sender := visited;
                RETURN NEXT;
            END IF;
        END LOOP;
        FOR j IN 1 .. cardinality(moved_ids) LOOP
            IF moved_stages[j] = this THEN
                found_ids := found_ids || moved_ids[j];
                found_senders := found_senders || moved_senders[j];
            END IF;
        END LOOP;

        listed := '{}'; listed_leads := '{}'; listed_floors := '{}'; listed_rows := '{}';
        place := array_position(sender_stages, i);
        IF place IS NOT NULL THEN
            last_place := place + cardinality(array_positions(sender_stages, i)) - 1;
            listed := senders[place:last_place];
            listed_leads := leads_us[place:last_place];
            listed_floors := sender_floors[place:last_place];
            listed_rows := sender_rows[place:last_place];
        END IF;
        -- The k-th oldest row of a sender ranks by lead + k * average, equals by age (F3).
        average := averages_us[i];
        new_ids := '{}'; new_senders := '{}'; new_ranks := '{}';
        FOR j IN 1 .. cardinality(old_ids) LOOP
            place := array_position(listed, old_senders[j]);
            IF place IS NULL OR listed_floors[place] IS NULL THEN
                new_ids := new_ids || old_ids[j];
                new_senders := new_senders || old_senders[j];
                new_ranks := new_ranks || coalesce(listed_leads[place], unlisted_us[i])
                    + average * cardinality(array_positions(new_senders, old_senders[j]));
            END IF;
        END LOOP;
        -- Of each sender that was found besides, the oldest row found; none where older ones of it are known.
        FOR j IN 1 .. cardinality(found_ids) LOOP
            place := array_position(listed, found_senders[j]);
            IF (place IS NULL OR listed_floors[place] IS NULL) AND found_senders[j] <> ALL (old_senders) THEN
                last_place := array_position(new_senders, found_senders[j]);
                IF last_place IS NULL THEN
                    new_ids := new_ids || found_ids[j];
                    new_senders := new_senders || found_senders[j];
                    new_ranks := new_ranks || coalesce(listed_leads[place], unlisted_us[i]) + average;
                ELSE
                    new_ids[last_place] := least(new_ids[last_place], found_ids[j]);
                END IF;
            END IF;
        END LOOP;

        fifo_ids := old_ids[:capacity - slots];
        SELECT coalesce(array_agg(c.id), '{}'), coalesce(array_agg(c.sender), '{}') INTO best_ids, best_senders
        FROM (
            SELECT u.id, u.sender
            FROM (
                SELECT n.id, n.sender, n.rank FROM unnest(new_ids, new_senders, new_ranks) AS n (id, sender, rank)
                UNION ALL
                SELECT r.id, l.sender, l.lead + average * r.k
                FROM unnest(listed, listed_leads, listed_floors, listed_rows) AS l (sender, lead, floor, rows)
                CROSS JOIN LATERAL (
                    SELECT x.id, row_number() OVER () AS k
                    FROM (
                        SELECT w.workqueue_id AS id
                        FROM pepsi.workqueue w
                        WHERE w.status = 'pending' AND w.stage = this
                          AND (w.sender_key, w.workqueue_id) >= (l.sender, l.floor) AND w.sender_key <= l.sender
                          AND w.workqueue_id <> ALL (excluded)
                        ORDER BY w.sender_key, w.workqueue_id
                        LIMIT l.rows
                    ) AS x
                ) AS r
                WHERE l.floor IS NOT NULL
            ) AS u
            WHERE u.id <> ALL (fifo_ids)
            ORDER BY u.rank, u.id
        ) AS c;
        -- Where those who were thought to wait had less than that, the oldest rows fill up.
        FOR j IN capacity - slots + 1 .. cardinality(old_ids) LOOP
            EXIT WHEN cardinality(best_ids) >= slots;
            IF old_ids[j] <> ALL (best_ids) THEN
                best_ids := best_ids || old_ids[j];
                best_senders := best_senders || old_senders[j];
            END IF;
        END LOOP;

        taken := fifo_ids || best_ids[:slots];
        kind := 'take'; id := NULL; sender := NULL; ids := taken;
        RETURN NEXT;
        ids := NULL; kind := 'seen';
        FOR j IN slots + 1 .. cardinality(best_ids) LOOP
            id := best_ids[j]; sender := best_senders[j];
            RETURN NEXT;
        END LOOP;
        FOR j IN 1 .. cardinality(found_ids) LOOP
            IF found_ids[j] <> ALL (taken) THEN
                id := found_ids[j]; sender := found_senders[j];
                RETURN NEXT;
            END IF;
        END LOOP;
        FOR j IN 1 .. cardinality(old_ids) LOOP
            IF old_ids[j] <> ALL (taken) THEN
                kind := 'floor'; id := old_ids[j]; sender := NULL;
                RETURN NEXT;
                EXIT;
            END IF;
        END LOOP;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pepsi.workqueue_look_fair(
    text[], integer[], integer[], bigint[], bigint[], bigint[], integer[], text[], bigint[],
    integer[], text[], bigint[], bigint[], integer[], bigint[], bigint[]
) IS 'Which rows a fair claim takes, and what it sees of the others';

-- What a claim looks at now and then: when the first paused row of these stages is due, and what waits at others. The rows of a
-- stage that was not asked for are never taken. Its name is found between two of those that were, by a probe of an index:
-- what has passed at those is not read. However many names there are, so many are visited that a claim can wait for it: pending
-- rows come first, of which each name counts; then paused rows, of which a name may have none that is due.
-- Returns: due - the microseconds until then, missing when no row is paused with a time; unserved - such a stage, and in `id` how
-- many of its rows are pending, or paused and due. Stages behind too many others are left out.
CREATE OR REPLACE FUNCTION pepsi.workqueue_survey(stages text[]) RETURNS TABLE (kind text, at_stage text, id bigint)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog
AS $$
DECLARE
    -- At most so many stages are told of, so many names visited, and so many rows counted of each.
    most_stages CONSTANT integer := 100;
    most_visits CONSTANT integer := 1000;
    most_rows CONSTANT integer := 1000;
    -- Behind every name of a stage, which has at most 200 octets.
    last_name CONSTANT text COLLATE "C" := repeat(U&'\+10FFFF', 51);
    at_status text; known text[]; told text[] := '{}'; visits integer := 0;
    above text COLLATE "C"; below text COLLATE "C";
BEGIN
    SELECT extract(epoch FROM min(f.timeout) - now()) * 1000000 INTO id
    FROM unnest(stages) AS s (stage) CROSS JOIN LATERAL (
        SELECT w.timeout
        FROM pepsi.workqueue w
        WHERE w.status = 'paused' AND w.timeout IS NOT NULL AND w.stage = s.stage
        ORDER BY w.stage, w.timeout
        LIMIT 1
    ) AS f;
    IF id IS NOT NULL THEN
        kind := 'due';
        RETURN NEXT;
    END IF;

    kind := 'unserved';
    SELECT coalesce(array_agg(s.stage ORDER BY s.stage COLLATE "C"), '{}') INTO known FROM unnest(stages) AS s (stage);
    FOREACH at_status IN ARRAY '{pending,paused}'::text[] LOOP
        FOR i IN 0 .. cardinality(known) LOOP
            above := coalesce(known[i], '');
            below := coalesce(known[i + 1], last_name);
            WHILE cardinality(told) < most_stages AND visits < most_visits LOOP
                IF at_status = 'pending' THEN
                    SELECT w.stage INTO above
                    FROM pepsi.workqueue w
                    WHERE w.status = 'pending' AND w.stage > above AND w.stage < below
                    ORDER BY w.stage, w.workqueue_id LIMIT 1;
                ELSE
                    SELECT w.stage INTO above
                    FROM pepsi.workqueue w
                    WHERE w.status = 'paused' AND w.timeout IS NOT NULL AND w.stage > above AND w.stage < below
                    ORDER BY w.stage, w.timeout LIMIT 1;
                END IF;
                EXIT WHEN NOT FOUND;
                visits := visits + 1;
                CONTINUE WHEN above = ANY (told);
                SELECT count(*) INTO id
                FROM (
                    (SELECT FROM pepsi.workqueue w
                     WHERE w.status = 'pending' AND (w.stage, w.workqueue_id) >= (above, 0) AND w.stage <= above
                     ORDER BY w.stage, w.workqueue_id LIMIT most_rows)
                    UNION ALL
                    (SELECT FROM pepsi.workqueue w
                     WHERE w.status = 'paused' AND w.timeout IS NOT NULL AND w.stage = above AND w.timeout <= now()
                     ORDER BY w.stage, w.timeout LIMIT most_rows)
                ) AS f;
                IF id > 0 THEN
                    told := told || above::text;
                    at_stage := above;
                    RETURN NEXT;
                END IF;
            END LOOP;
        END LOOP;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pepsi.workqueue_survey(text[]) IS 'When the first paused row is due, and what waits at stages that nobody serves';

-- The one pending-to-running write, for all stages at once.
-- One element a stage: stages; capacities - at most so many rows; fifo_slots - of which so many go to the oldest rows, all of
-- them when scheduling is not to be fair; averages_us - time of a message, at least 1; floors - the smallest id worth
-- looking at; marks - the smallest id that may be of a sender not known yet; visits - how many senders to visit behind
-- cursors, none when 0; unlisted_us - the lead of a sender that is not listed.
-- One element a listed sender, those of a stage side by side: sender_stages - place of the stage in `stages`; senders;
-- leads_us; sender_floors - the oldest row it may have waiting, null when it is not thought to wait; sender_rows - how many
-- of its rows to read.
-- touched: ids that changed their place since the last claim, wherever they are now.
-- skip_locked: rows that somebody has locked are passed over (after a claim that waited too long for one).
-- survey: what workqueue_survey tells is told too.
-- Returns `claimed` rows, the notices of workqueue_look_fair (all but `take`) and of workqueue_survey, with `id` as
-- workqueue_id, and one row `end`, whose claims is the greatest id given out so far.
CREATE OR REPLACE FUNCTION pepsi.workqueue_claim_fair(
    stages text[], capacities integer[], fifo_slots integer[], averages_us bigint[], floors bigint[], marks bigint[],
    visits integer[], cursors text[], unlisted_us bigint[],
    sender_stages integer[], senders text[], leads_us bigint[], sender_floors bigint[], sender_rows integer[],
    touched bigint[], skip_locked boolean, survey boolean
) RETURNS TABLE (kind text, stage text, workqueue_id bigint, claims bigint, sender_key text, strikes integer)
    LANGUAGE plpgsql SET search_path = pg_catalog
    SET plan_cache_mode = force_generic_plan SET jit = off
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    -- So often are rows that turn out to be locked replaced by others.
    rounds CONSTANT integer := 8;
    look record; wanted bigint[]; free bigint[]; locked bigint[] := '{}';
BEGIN
    FOR round IN 1 .. CASE WHEN skip_locked THEN rounds ELSE 0 END LOOP
        wanted := '{}';
        FOR look IN
            SELECT l.ids
            FROM pepsi.workqueue_look_fair(stages, capacities, fifo_slots, averages_us, floors, marks, visits, cursors,
                unlisted_us, sender_stages, senders, leads_us, sender_floors, sender_rows, touched, locked) AS l
            WHERE l.kind = 'take'
        LOOP
            wanted := wanted || look.ids;
        END LOOP;
        SELECT coalesce(array_agg(f.workqueue_id), '{}') INTO free
        FROM (
            SELECT w.workqueue_id FROM pepsi.workqueue w
            WHERE w.workqueue_id = ANY (wanted) AND (w.status = 'pending') IS TRUE
            FOR UPDATE SKIP LOCKED
        ) AS f;
        EXIT WHEN cardinality(free) = cardinality(wanted);
        SELECT locked || array_agg(u.id) INTO locked FROM unnest(wanted) AS u (id) WHERE u.id <> ALL (free);
    END LOOP;

    wanted := '{}';
    FOR look IN
        SELECT l.kind, l.at_stage, l.id, l.sender, l.ids
        FROM pepsi.workqueue_look_fair(stages, capacities, fifo_slots, averages_us, floors, marks, visits, cursors,
            unlisted_us, sender_stages, senders, leads_us, sender_floors, sender_rows, touched, locked) AS l
    LOOP
        IF look.kind = 'take' THEN
            wanted := wanted || look.ids;
        ELSE
            kind := look.kind; stage := look.at_stage; workqueue_id := look.id; sender_key := look.sender;
            RETURN NEXT;
        END IF;
    END LOOP;
    IF cardinality(wanted) > 0 THEN
        RETURN QUERY
        UPDATE pepsi.workqueue AS w
        SET status = 'running', claims = w.claims + 1
        WHERE w.workqueue_id = ANY (wanted) AND (w.status = 'pending') IS TRUE
        RETURNING 'claimed', w.stage::text, w.workqueue_id, w.claims, w.sender_key::text,
            CASE WHEN jsonb_typeof(w.state -> 'strikes') = 'number'
                THEN least(greatest(trunc((w.state ->> 'strikes')::numeric), 0), 1000)::integer ELSE 0 END;
    END IF;
    IF survey THEN
        RETURN QUERY SELECT s.kind, s.at_stage, s.id, NULL::bigint, NULL, NULL::integer FROM pepsi.workqueue_survey(stages) AS s;
    END IF;
    kind := 'end'; stage := NULL; workqueue_id := NULL; sender_key := NULL;
    claims := coalesce(pg_sequence_last_value('pepsi.workqueue_workqueue_id_seq'), 0);
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION pepsi.workqueue_claim_fair(
    text[], integer[], integer[], bigint[], bigint[], bigint[], integer[], text[], bigint[],
    integer[], text[], bigint[], bigint[], integer[], bigint[], boolean, boolean
) IS 'Claims waiting rows of all stages, fairly by sender; see docs/fairness.md';
