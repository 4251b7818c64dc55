-- The fair claim (requirements W3, W7, F3, F6, F7, F8): which waiting rows fill the stages' spare capacity, and the write that
-- takes them. docs/fairness.md tells the algorithm; the model that this must agree with is `choose` in
-- src/dispatch/machine/fair/choose.rs.
--
-- Each statement is one range of an index, and ORDER BY names all of its columns before a LIMIT; sorting is not planned where
-- an index has the order. Then no estimate, such as that of a queue that was empty a moment ago, can turn it into a walk along
-- another index. A comparison of rows ends a search only where their first columns differ, so the rows of a sender end by its
-- name alone. Rows are looked up by id with a status that IS TRUE, which does not fit the condition of a partial index. No range
-- begins before what the dispatcher has seen the end of (floors, marks), so that dead entries, which stay while any session
-- holds an old snapshot, are passed once and not by every claim.

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
-- Returns, in any order: claimed - a row that is running now; seen - a row that waits or, if it was touched, may be claimed
-- besides; floor - the oldest row of a stage that is not taken, missing where all were; mark - where the next reading of new
-- rows begins, missing where there were none; cursor - the last sender visited, missing where no more may follow; due - the
-- microseconds until the first of the touched rows is due that are paused at one of the stages, missing without such a row;
-- what workqueue_survey returns; end - once, its claims is the greatest id given out so far.
CREATE OR REPLACE FUNCTION pepsi.workqueue_claim_fair(
    stages text[], capacities integer[], fifo_slots integer[], averages_us bigint[], floors bigint[], marks bigint[],
    visits integer[], cursors text[], unlisted_us bigint[],
    sender_stages integer[], senders text[], leads_us bigint[], sender_floors bigint[], sender_rows integer[],
    touched bigint[], skip_locked boolean, survey boolean
) RETURNS TABLE (kind text, stage text, workqueue_id bigint, claims bigint, sender_key text, strikes integer)
    LANGUAGE plpgsql SET search_path = pg_catalog
    SET plan_cache_mode = force_generic_plan SET jit = off
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET enable_sort = off SET enable_incremental_sort = off
AS $$
DECLARE
    -- At most so many new rows are read for senders that are not known yet.
    fresh_limit CONSTANT integer := 32;
    -- The greatest id there can be: the end of a stage's range.
    last_id CONSTANT bigint := 9223372036854775807;
    moved_ids bigint[] := '{}'; moved_stages text[]; moved_senders text[]; first_due timestamptz;
    this text COLLATE "C"; capacity integer; slots integer; bottom bigint; mark bigint;
    -- The stage's oldest rows, one more than its capacity; of these the first go to the FIFO slots.
    old_ids bigint[]; old_senders text[]; fifo_ids bigint[];
    -- Rows that tell of senders which the dispatcher may not know.
    found_ids bigint[]; found_senders text[]; found_id bigint; visited text COLLATE "C"; fresh_id bigint;
    -- Listed senders of this stage: those that are thought to wait have a floor.
    place integer; last_place integer;
    listed text[]; listed_leads bigint[]; listed_floors bigint[]; listed_rows integer[];
    -- All candidates for the slots that are not FIFO, best first.
    best_ids bigint[]; best_senders text[];
    -- What is taken of this stage, and of all stages.
    taken bigint[]; wanted bigint[] := '{}';
BEGIN
    IF cardinality(touched) > 0 THEN
        SELECT coalesce(array_agg(w.workqueue_id) FILTER (WHERE w.status = 'pending'), '{}'),
               array_agg(w.stage) FILTER (WHERE w.status = 'pending'),
               array_agg(w.sender_key) FILTER (WHERE w.status = 'pending'),
               min(w.timeout) FILTER (WHERE w.status = 'paused')
        INTO moved_ids, moved_stages, moved_senders, first_due
        FROM pepsi.workqueue w
        WHERE w.workqueue_id = ANY (touched) AND w.stage = ANY (stages);
        IF first_due IS NOT NULL THEN
            kind := 'due'; workqueue_id := extract(epoch FROM first_due - now()) * 1000000;
            RETURN NEXT;
        END IF;
        IF cardinality(moved_ids) > 0 THEN
            RETURN QUERY SELECT 'seen', m.stage, m.id, NULL::bigint, m.sender, NULL::integer
                FROM unnest(moved_ids, moved_stages, moved_senders) AS m (id, stage, sender);
        END IF;
    END IF;

    FOR i IN 1 .. cardinality(stages) LOOP
        this := stages[i]; capacity := least(capacities[i], 1000000); slots := capacity - fifo_slots[i];
        CONTINUE WHEN capacity <= 0;
        bottom := floors[i]; found_ids := '{}'; found_senders := '{}'; best_ids := '{}'; best_senders := '{}';
        fresh_id := NULL; visited := NULL;
        IF cardinality(moved_ids) > 0 THEN
            SELECT least(bottom, min(m.id)) INTO bottom
            FROM unnest(moved_ids, moved_stages) AS m (id, stage) WHERE m.stage = this;
        END IF;
        SELECT coalesce(array_agg(o.id), '{}'), coalesce(array_agg(o.sender), '{}') INTO old_ids, old_senders
        FROM (
            SELECT w.workqueue_id AS id, w.sender_key AS sender
            FROM pepsi.workqueue w
            WHERE w.status = 'pending' AND (w.stage, w.workqueue_id) >= (this, bottom)
              AND (w.stage, w.workqueue_id) <= (this, last_id)
            ORDER BY w.stage, w.workqueue_id
            LIMIT capacity + 1
        ) AS o;
        IF cardinality(old_ids) <= capacity OR slots <= 0 THEN
            -- Room for all, or nothing but FIFO slots.
            taken := old_ids[:capacity];
        ELSE
            -- More waits than there is room for. The new rows may be of new senders.
            mark := marks[i];
            SELECT coalesce(array_agg(f.id), '{}'), coalesce(array_agg(f.sender), '{}'), max(f.id)
            INTO found_ids, found_senders, fresh_id
            FROM (
                SELECT w.workqueue_id AS id, w.sender_key AS sender
                FROM pepsi.workqueue w
                WHERE w.status = 'pending' AND (w.stage, w.workqueue_id) >= (this, mark)
                  AND (w.stage, w.workqueue_id) <= (this, last_id)
                ORDER BY w.stage, w.workqueue_id
                LIMIT fresh_limit
            ) AS f;
            -- A loose index scan visits the next senders in the order of their keys: one probe each, however much each has.
            visited := cursors[i];
            FOR visit IN 1 .. visits[i] LOOP
                SELECT w.sender_key, w.workqueue_id INTO visited, found_id
                FROM pepsi.workqueue w
                WHERE w.status = 'pending' AND w.stage = this AND w.sender_key > visited
                ORDER BY w.sender_key, w.workqueue_id
                LIMIT 1;
                -- After the last one `visited` is null.
                EXIT WHEN NOT FOUND;
                found_ids := found_ids || found_id;
                found_senders := found_senders || visited;
            END LOOP;
            IF cardinality(moved_ids) > 0 THEN
                SELECT found_ids || coalesce(array_agg(m.id), '{}'), found_senders || coalesce(array_agg(m.sender), '{}')
                INTO found_ids, found_senders
                FROM unnest(moved_ids, moved_stages, moved_senders) AS m (id, stage, sender)
                WHERE m.stage = this;
            END IF;

            place := array_position(sender_stages, i);
            last_place := place + cardinality(array_positions(sender_stages, i)) - 1;
            listed := coalesce(senders[place:last_place], '{}');
            listed_leads := leads_us[place:last_place];
            listed_floors := sender_floors[place:last_place];
            listed_rows := sender_rows[place:last_place];
            fifo_ids := old_ids[:capacity - slots];
            -- The k-th oldest row of a sender ranks by lead + k * average, equals by age (F3). Of the senders that are
            -- thought to wait their next rows count; of the others those among the oldest rows; and of others again that
            -- were found the oldest row found.
            SELECT coalesce(array_agg(c.id), '{}'), coalesce(array_agg(c.sender), '{}') INTO best_ids, best_senders
            FROM (
                SELECT u.id, u.sender
                FROM (
                    SELECT p.id, p.sender, coalesce(listed_leads[p.place], unlisted_us[i])
                        + averages_us[i] * row_number() OVER (PARTITION BY p.sender ORDER BY p.id) AS rank
                    FROM (
                        SELECT n.id, n.sender, array_position(listed, n.sender) AS place
                        FROM (
                            SELECT o.id, o.sender FROM unnest(old_ids, old_senders) AS o (id, sender)
                            UNION ALL
                            SELECT min(f.id), f.sender FROM unnest(found_ids, found_senders) AS f (id, sender)
                            WHERE f.sender <> ALL (old_senders)
                            GROUP BY f.sender
                        ) AS n
                    ) AS p
                    WHERE listed_floors[p.place] IS NULL
                    UNION ALL
                    SELECT r.id, l.sender, l.lead + averages_us[i] * r.k
                    FROM unnest(listed, listed_leads, listed_floors, listed_rows) AS l (sender, lead, floor, rows)
                    CROSS JOIN LATERAL (
                        SELECT x.id, row_number() OVER () AS k
                        FROM (
                            SELECT w.workqueue_id AS id
                            FROM pepsi.workqueue w
                            WHERE w.status = 'pending' AND w.stage = this
                              AND (w.sender_key, w.workqueue_id) >= (l.sender, l.floor) AND w.sender_key <= l.sender
                            ORDER BY w.sender_key, w.workqueue_id
                            LIMIT l.rows
                        ) AS x
                    ) AS r
                    WHERE l.floor IS NOT NULL
                ) AS u
                WHERE u.id <> ALL (fifo_ids)
                ORDER BY u.rank, u.id
            ) AS c;
            taken := fifo_ids || best_ids[:slots];
            IF cardinality(best_ids) < slots THEN
                -- Where those who were thought to wait had less than that, the oldest rows fill up.
                taken := taken || ARRAY(
                    SELECT o.id FROM unnest(old_ids) AS o (id) WHERE o.id <> ALL (taken)
                    ORDER BY o.id LIMIT slots - cardinality(best_ids));
            END IF;
        END IF;
        IF skip_locked THEN
            -- What somebody has locked is left; the oldest rows that are free take its place, whoever sent them.
            SELECT coalesce(array_agg(f.id), '{}') INTO taken
            FROM (
                SELECT w.workqueue_id AS id FROM pepsi.workqueue w
                WHERE w.workqueue_id = ANY (taken) AND (w.status = 'pending') IS TRUE
                FOR UPDATE SKIP LOCKED
            ) AS f;
            SELECT taken || coalesce(array_agg(f.id), '{}') INTO taken
            FROM (
                SELECT w.workqueue_id AS id
                FROM pepsi.workqueue w
                WHERE w.status = 'pending' AND (w.stage, w.workqueue_id) >= (this, bottom)
                  AND (w.stage, w.workqueue_id) <= (this, last_id) AND w.workqueue_id <> ALL (taken)
                ORDER BY w.stage, w.workqueue_id
                LIMIT capacity - cardinality(taken)
                FOR UPDATE SKIP LOCKED
            ) AS f;
        END IF;

        wanted := wanted || taken;
        stage := this;
        IF cardinality(old_ids) > cardinality(taken) THEN
            kind := 'floor'; sender_key := NULL;
            SELECT min(o.id) INTO workqueue_id FROM unnest(old_ids) AS o (id) WHERE o.id <> ALL (taken);
            RETURN NEXT;
        END IF;
        IF fresh_id IS NOT NULL THEN
            kind := 'mark'; workqueue_id := fresh_id + 1; sender_key := NULL;
            RETURN NEXT;
        END IF;
        IF visited <> '' AND visits[i] > 0 THEN
            kind := 'cursor'; workqueue_id := NULL; sender_key := visited;
            RETURN NEXT;
        END IF;
        IF cardinality(found_ids) > 0 OR cardinality(best_ids) > slots THEN
            RETURN QUERY SELECT 'seen', this::text, min(o.id), NULL::bigint, o.sender, NULL::integer
                FROM unnest(found_ids || best_ids[slots + 1:], found_senders || best_senders[slots + 1:]) AS o (id, sender)
                WHERE o.id <> ALL (taken)
                GROUP BY o.sender;
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
