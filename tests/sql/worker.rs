//! The worker's and the tools' statements: admission, loading, committing, listing.

use super::harness::{self, Database};
use super::sql::ops::{Admission, Filter};
use super::sql::queue::{Channel, DueRows, Held};
use super::sql::row::{Content, Load, Move, Row};
use super::sql::{Db, Purpose};
use super::{WORKER, admit, claim_one, open};
use serde_json::{Value, json};

struct World {
    database: Database,
    dispatcher: Db,
    worker: Db,
}

impl World {
    fn new() -> World {
        let database = harness::database();
        let (dispatcher, worker) = (open(&database, Purpose::Dispatcher), open(&database, WORKER));
        World { database, dispatcher, worker }
    }

    fn claimed(&mut self) -> Held {
        admit(&mut self.worker, "a");
        claim_one(&mut self.dispatcher, "a")
    }

    fn load(&mut self, id: i64) -> Row {
        self.worker.load(id, Load::Full).expect("a load").expect("a row")
    }

    fn commit(&mut self, held: Held, content: &Content, merge: Value, to: &Move) -> bool {
        self.worker.commit(held.id, held.claim, content, &merge, to).expect("a commit")
    }
}

fn advance(stage: &str) -> Move {
    Move::Advance { stage: stage.into() }
}

// Req: W6
#[test]
fn what_the_loop_itself_writes_notifies_nobody() {
    let mut world = World::new();
    let mut listener = open(&world.database, Purpose::Dispatcher);
    listener.listen().expect("LISTEN");
    let nothing = Content::default();
    for to in [advance("b"), Move::Pause { pause_us: 0 }, Move::Fail, Move::Finish] {
        let held = world.claimed();
        assert!(world.commit(held, &nothing, json!({}), &to), "{to:?}");
        assert_eq!(listener.poll_notifications(), Ok(vec![]), "{to:?}");
    }
    let requeued = world.claimed();
    assert_eq!(world.dispatcher.requeue(&[requeued]), Ok(1));
    let struck = claim_one(&mut world.dispatcher, "a");
    assert_eq!(world.dispatcher.strike(struck, 1, 0, "crashed", "x"), Ok(true));
    let due = DueRows { stage: "a".into(), rows: 9, since_us: None };
    let swept = world.dispatcher.sweep_paused(&[due]).expect("a sweep").rows;
    assert_eq!(swept.len(), 2, "the one that was paused and the one that was struck");
    let lost = claim_one(&mut world.dispatcher, "a");
    assert_eq!(world.dispatcher.pause_claimed(lost, 1, "x"), Ok(true));
    let failed = claim_one(&mut world.dispatcher, "a");
    assert_eq!(world.dispatcher.fail_claimed(failed, "x"), Ok(true));
    assert_eq!(listener.poll_notifications(), Ok(vec![]));
    world.dispatcher.notify_workqueue().expect("it is told");
    assert_eq!(listener.poll_notifications(), Ok(vec![Channel::Workqueue]), "it would have heard");
}

// Req: A1
#[test]
fn each_load_has_what_it_asks_for_and_always_the_size() {
    let mut world = World::new();
    let held = world.claimed();
    let full = world.load(held.id);
    assert_eq!(
        (full.id, full.claim, full.status.as_str(), full.stage.as_str()),
        (held.id, 1, "running", "a")
    );
    assert_eq!((full.mail_from.as_str(), full.rcpt_to.len()), ("s@example.org", 1));
    assert_eq!((full.header_from.as_deref(), full.subject.as_deref()), (None, Some("x")));
    assert_eq!(
        (full.headers.as_deref(), full.body.as_deref()),
        (Some(&b"Subject: x\r\n"[..]), Some(&b"body"[..]))
    );
    assert_eq!(full.size, 12 + 2 + 4);
    assert!((0..600_000_000).contains(&(full.now_us - full.received_at_us)));
    let headers = world.worker.load(held.id, Load::Headers).expect("a load").expect("a row");
    assert_eq!((&headers.headers, &headers.body, headers.size), (&full.headers, &None, 18));
    let metadata = world.worker.load(held.id, Load::Metadata).expect("a load").expect("a row");
    assert_eq!((metadata.headers, metadata.body, metadata.size), (None, None, 18));
    assert_eq!(world.worker.load(held.id + 1, Load::Full), Ok(None));
}

// Req: A8
#[test]
fn a_message_without_a_body_has_none() {
    let mut world = World::new();
    let rcpt_to: [String; 0] = [];
    for (headers, body, size) in [(&b""[..], None, 0), (b"", Some(&b""[..]), 2), (b"\0\xff", None, 2)] {
        let message =
            Admission { mail_from: "", rcpt_to: &rcpt_to, headers, body, state: json!({}), stage: "a" };
        let id = world.worker.admit(&message).expect("any bytes");
        let row = world.load(id);
        assert_eq!((row.headers.as_deref(), row.body.as_deref(), row.size), (Some(headers), body, size));
    }
}

// Req: D4
#[test]
fn every_commit_is_fenced_by_its_claim() {
    let moves = [advance("b"), Move::Pause { pause_us: 1_000_000 }, Move::Fail, Move::Finish];
    let rewrites = Content { subject: Some(None), body: Some(Some(b"new".to_vec())), ..Content::default() };
    let mut world = World::new();
    for to in &moves {
        for content in [Content::default(), rewrites.clone()] {
            let held = world.claimed();
            let before = world.load(held.id);
            for other in [held.claim - 1, held.claim + 1] {
                assert!(!world.commit(Held { claim: other, ..held }, &content, json!({"x": 1}), to));
            }
            let after = world.load(held.id);
            assert_eq!(
                (&after.status, &after.state, &after.body),
                (&before.status, &before.state, &before.body)
            );
            assert_eq!(
                world.database.number("SELECT count(*) FROM pepsi.workqueue_body"),
                1,
                "no stray body"
            );
            assert!(world.commit(held, &content, json!({"x": 1}), to));
            assert!(!world.commit(held, &content, json!({"x": 1}), to), "it runs no more");
            world.database.run("DELETE FROM pepsi.workqueue");
        }
    }
}

// Req: A2
// Req: A4
// Req: E2
#[test]
fn a_move_merges_the_state_and_only_a_new_stage_forgets_failures() {
    let old =
        json!({"dsn": {"ret": "hdrs"}, "n": 1, "strikes": 2, "temporary_failures": 3, "last_error": "x"});
    let expectations = [
        (advance("b"), "pending", "b", json!({"dsn": {"ret": "hdrs"}, "n": 2, "last_error": "new"})),
        (Move::Pause { pause_us: 5_000_000 }, "paused", "a", json!({"last_error": "new", "n": 2})),
        (Move::Fail, "failed", "a", json!({"last_error": "new", "n": 2})),
    ];
    let mut world = World::new();
    for content in [Content::default(), Content { mail_from: Some("new@x".into()), ..Content::default() }] {
        for (to, status, stage, changed) in &expectations {
            let held = world.claimed();
            let set = "UPDATE pepsi.workqueue SET state = $1 WHERE workqueue_id = $2";
            world.database.client.execute(set, &[&old, &held.id]).expect("an update");
            assert!(world.commit(held, &content, json!({"n": 2, "last_error": "new"}), to));
            let row = world.load(held.id);
            assert_eq!((row.status.as_str(), row.stage.as_str()), (*status, *stage));
            let mut expected = if *status == "pending" { json!({}) } else { old.clone() };
            for (key, value) in changed.as_object().expect("an object") {
                expected[key] = value.clone();
            }
            assert_eq!(row.state, expected);
            let timed =
                format!("SELECT count(timeout) FROM pepsi.workqueue WHERE workqueue_id = {}", held.id);
            assert_eq!(world.database.number(&timed), i64::from(*status == "paused"));
        }
    }
    let held = world.claimed();
    assert!(world.commit(held, &Content::default(), json!({}), &Move::Finish));
    assert_eq!(world.worker.load(held.id, Load::Metadata), Ok(None));
}

// Req: A3
#[test]
fn a_rewrite_changes_what_was_touched_and_gives_the_row_a_body_of_its_own() {
    let mut world = World::new();
    let held = world.claimed();
    let call = "SELECT pepsi.workqueue_split($1, $2, '{r@example.org}', '[{\"rcpt_to\": [\"sibling@x\"]}]')";
    let ids: Vec<i64> =
        world.database.client.query_one(call, &[&held.id, &held.claim]).expect("a split").get(0);
    let content = Content {
        rcpt_to: Some(vec!["new@x".into(), "other@x".into()]),
        header_from: Some(Some("f\0rom".into())),
        subject: Some(None),
        headers: Some(b"X: 1\r\n".to_vec()),
        body: Some(Some(vec![0; 100_000])),
        ..Content::default()
    };
    assert!(world.commit(held, &content, json!({}), &advance("b")));
    let row = world.load(held.id);
    assert_eq!(
        (row.mail_from.as_str(), row.rcpt_to),
        ("s@example.org", vec!["new@x".to_owned(), "other@x".into()])
    );
    assert_eq!((row.header_from.as_deref(), row.subject), (Some("from"), None));
    assert_eq!((row.headers, row.body.map(|body| body.len())), (Some(b"X: 1\r\n".to_vec()), Some(100_000)));
    assert_eq!(world.load(ids[0]).body.as_deref(), Some(&b"body"[..]), "a sibling sees nothing of it");
    let held = claim_one(&mut world.dispatcher, "b");
    let without = Content { body: Some(None), ..Content::default() };
    assert!(world.commit(held, &without, json!({}), &Move::Fail));
    assert_eq!(world.load(held.id).body, None);
    assert_eq!(world.database.number("SELECT count(*) FROM pepsi.workqueue_body"), 1, "the sibling's alone");
}

// Req: A3
#[test]
fn large_columns_that_were_not_touched_are_not_written_again() {
    let mut world = World::new();
    let headers: Vec<u8> = (0..40_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    let rcpt_to = ["a@b".to_owned()];
    let state = json!({});
    let message = Admission {
        mail_from: "",
        rcpt_to: &rcpt_to,
        headers: &headers,
        body: Some(&headers),
        state,
        stage: "a",
    };
    world.worker.admit(&message).expect("a large message");
    let held = claim_one(&mut world.dispatcher, "a");
    let toast = world
        .database
        .text("SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'pepsi.workqueue'::regclass");
    let chunks = format!("SELECT string_agg(DISTINCT chunk_id::text, ' ') FROM {toast}");
    let before = world.database.text(&chunks);
    assert!(!before.contains(' '), "the headers alone are out of line: {before}");
    let content = Content { subject: Some(Some("new".into())), ..Content::default() };
    assert!(world.commit(held, &content, json!({"x": 1}), &advance("a")));
    assert_eq!(world.database.text(&chunks), before);
    let row = world.load(held.id);
    assert_eq!((row.headers, row.size), (Some(headers), 160_000 * 2 + 2));
}

// Req: A7
#[test]
fn admission_is_durable_and_a_worker_waits_for_the_disk_only_when_told() {
    let mut database = harness::database();
    database.run(
        "CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             NEW.header_from := current_setting('synchronous_commit') || ' ' || current_setting('transaction_isolation');
             RETURN NEW;
         END $$;
         CREATE TRIGGER note BEFORE INSERT ON pepsi.workqueue FOR EACH ROW EXECUTE FUNCTION public.note()",
    );
    let seen = |purpose: Purpose| {
        let mut db = open(&database, purpose);
        let id = admit(&mut db, "a");
        db.load(id, Load::Metadata).expect("a load").expect("the row").header_from
    };
    assert_eq!(seen(Purpose::Admission).as_deref(), Some("on read committed"));
    assert_eq!(seen(WORKER).as_deref(), Some("off read committed"));
    assert_eq!(seen(Purpose::Worker { synchronous_commit: true }).as_deref(), Some("on read committed"));
    assert_eq!(seen(Purpose::Dispatcher).as_deref(), Some("off read committed"));
}

#[test]
fn state_is_stored_without_what_the_database_cannot_hold() {
    let mut world = World::new();
    let rcpt_to = ["a@b".to_owned()];
    let state = json!({"origin": {"helo": "a\u{0}b"}, "\u{0}k": ["\u{0}"]});
    let message = Admission { mail_from: "", rcpt_to: &rcpt_to, headers: b"", body: None, state, stage: "a" };
    let id = world.worker.admit(&message).expect("cleaned");
    assert_eq!(world.load(id).state, json!({"origin": {"helo": "ab"}, "k": [""]}));
    let held = claim_one(&mut world.dispatcher, "a");
    assert!(world.commit(held, &Content::default(), json!({"reply": "5\u{0}50"}), &Move::Fail));
    assert_eq!(world.load(id).state["reply"], "550");
}

#[test]
fn a_list_shows_what_was_asked_for_oldest_first() {
    let mut world = World::new();
    let mut tool = open(&world.database, Purpose::Tool);
    let first = world.claimed();
    let second = admit(&mut world.worker, "b");
    assert!(world.commit(first, &Content::default(), json!({"n": 1}), &Move::Pause { pause_us: 90_000_000 }));
    let mut ids = |filter: Filter| -> Vec<i64> {
        tool.list(&Filter { limit: 9, ..filter }).expect("a list").iter().map(|row| row.id).collect()
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(ids(Filter::default()), [first.id, second]);
    assert_eq!(ids(Filter { stage: some("b"), ..Filter::default() }), [second]);
    assert_eq!(ids(Filter { status: some("paused"), ..Filter::default() }), [first.id]);
    assert_eq!(ids(Filter { sender: some("S@Example.org"), ..Filter::default() }).len(), 2);
    assert_eq!(ids(Filter { recipient: some("R@example.ORG"), ..Filter::default() }).len(), 2);
    assert_eq!(ids(Filter { recipient: some("r@example"), ..Filter::default() }), [0i64; 0]);
    assert_eq!(tool.list(&Filter { limit: 1, ..Filter::default() }).expect("a list").len(), 1);
    assert!(tool.list(&Filter { status: some("odd"), limit: 1, ..Filter::default() }).is_err());
    let row = tool.show(first.id).expect("a look").expect("the row");
    assert_eq!((row.stage.as_str(), row.status.as_str(), row.claims, row.size), ("a", "paused", 1, 18));
    assert_eq!((row.state, row.sender_key.as_str()), (json!({"n": 1}), "from:example.org"));
    assert!(row.due_seconds.is_some_and(|due| (1..=90).contains(&due)) && row.age_seconds >= 0);
    assert!(row.received_at.len() == 20 && row.received_at.ends_with('Z'), "{}", row.received_at);
    assert_eq!(tool.show(0).expect("a look").map(|row| row.id), None);
}

#[test]
fn the_overlay_is_read_for_everybody_alone() {
    let mut world = World::new();
    world.database.run("INSERT INTO pepsi.config_override VALUES ('global', 'stage-b', 'X', '1'), ('global', 'Stage-A', 'y', ''),
        ('domain:x', 'stage-a', 'Z', '2')");
    let row =
        |section: &str, option: &str, value: &str| (section.to_owned(), option.to_owned(), value.to_owned());
    assert_eq!(world.worker.overrides(), Ok(vec![row("Stage-A", "y", ""), row("stage-b", "X", "1")]));
}

// Req: X1
#[test]
fn settings_of_a_messages_correspondents_come_with_its_row() {
    let mut world = World::new();
    let held = world.claimed();
    world.database.run("UPDATE pepsi.workqueue SET rcpt_to = '{Bob@Example.NET,eve@x,b@x@y,odd,\"\"}'");
    let found = |world: &mut World| {
        let found = world.load(held.id).settings?;
        let mut rows: Vec<String> =
            found.as_array().expect("an array").iter().map(Value::to_string).collect();
        rows.sort();
        Some(rows)
    };
    assert_eq!(found(&mut world), None, "nobody has any");
    world.database.run("INSERT INTO pepsi.config_override VALUES ('global', 'stage-x', 'A', '1')");
    assert_eq!(found(&mut world), None, "what counts for all is laid over the file");
    world.database.run("INSERT INTO pepsi.settings VALUES ('other@x', 'x', 'A', '1')");
    assert_eq!(found(&mut world), Some(vec![]));
    world.database.run(
        "INSERT INTO pepsi.settings VALUES ('bob@example.net', 'x', 'A', '1'), ('s@example.org', 'x', 'A', 'sender''s');
         INSERT INTO pepsi.config_override VALUES ('domain:x', 'Stage-x', 'a', '2'), ('domain:y', 'stage-x', 'a', '3'),
             ('address:eve@x', 'stage-x', 'A', '4'), ('domain:z', 'stage-x', 'a', '5'), ('domain:odd', 'stage-x', 'a', '6')",
    );
    let expected = [
        r#"["address:eve@x","stage-x","A","4"]"#,
        r#"["domain:odd","stage-x","a","6"]"#,
        r#"["domain:x","Stage-x","a","2"]"#,
        r#"["domain:y","stage-x","a","3"]"#,
        r#"["owner:bob@example.net","stage-x","A","1"]"#,
    ];
    assert_eq!(found(&mut world), Some(expected.map(str::to_owned).to_vec()));
    world.database.run("UPDATE pepsi.workqueue SET state = '{\"local_origin\": true}'");
    let of_sender = r#"["owner:s@example.org","stage-x","A","sender's"]"#;
    assert_eq!(found(&mut world), Some(vec![of_sender.to_owned()]));
    world.database.run("UPDATE pepsi.workqueue SET state = '{}', rcpt_to = '{}'");
    assert_eq!(found(&mut world), Some(vec![]));
}

// Req: X1
#[test]
fn settings_are_changed_all_or_nothing_and_the_last_word_counts() {
    let mut world = World::new();
    let mut set = |changes: &[(&str, &str, Option<&str>)]| world.worker.change_settings("a@x", changes);
    assert_eq!(set(&[("x", "A", Some("1")), ("x", "A", Some("2")), ("y", "B", Some("3\0"))]), Ok(2));
    assert_eq!(set(&[("x", "A", None), ("y", "B", None), ("y", "B", Some("4")), ("z", "C", None)]), Ok(2));
    assert!(set(&[("y", "B", None), ("", "D", Some("no stage"))]).is_err());
    let mut shown = |address, stage| -> Vec<String> {
        let all = world.worker.settings(address, stage, 9).expect("a list");
        all.iter().map(|one| format!("{} {} {} {}", one.address, one.stage, one.option, one.value)).collect()
    };
    assert_eq!(shown(None, None), ["a@x y B 4"]);
    assert_eq!(shown(Some("a@x"), Some("y")), ["a@x y B 4"]);
    assert!(shown(Some("b@x"), None).is_empty() && shown(None, Some("x")).is_empty());
}
