//! The dispatcher's statements: lock, notifications, claim, fenced writes, sweep, statistics.

use super::harness::{self, Database, PATIENCE, wait_until};
use super::sql::claim::{Claimed, Want};
use super::sql::queue::{Channel, DueRows, Held, Lock, StageCount, Stray, Swept};
use super::sql::{Db, Error, Purpose};
use super::{admit, claim, claim_one, open, survey, want};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn row(database: &mut Database, id: i64) -> Value {
    let query = "SELECT to_jsonb(q) FROM pepsi.workqueue q WHERE workqueue_id = $1";
    database.client.query_one(query, &[&id]).unwrap_or_else(|error| panic!("row {id}: {error}")).get(0)
}

fn dispatcher(database: &Database) -> Db {
    open(database, Purpose::Dispatcher)
}

fn ids(rows: &[Claimed]) -> Vec<(&str, i64)> {
    rows.iter().map(|row| (row.stage.as_str(), row.held.id)).collect()
}

// Req: D1
// Req: D6
#[test]
fn one_session_holds_the_lock_and_can_be_ended_by_its_start() {
    let database = harness::database();
    let mut first = dispatcher(&database);
    let mut second = dispatcher(&database);
    let Lock::Taken(backend) = first.lock_dispatcher().expect("an answer") else {
        panic!("the lock is free")
    };
    assert_eq!(second.lock_dispatcher(), Ok(Lock::HeldBy(Some(backend.clone()))));
    let elsewhere = harness::database();
    assert!(
        matches!(dispatcher(&elsewhere).lock_dispatcher(), Ok(Lock::Taken(_))),
        "the lock is a database's own"
    );
    let mut later = backend.clone();
    later.started_us += 1;
    second.terminate(&later).expect("nobody is meant");
    first.notify_workqueue().expect("the first lives");
    second.terminate(&backend).expect("the first is ended");
    wait_until("the lock is free", PATIENCE, || matches!(second.lock_dispatcher(), Ok(Lock::Taken(_))));
    assert!(matches!(first.notify_workqueue(), Err(Error::Lost(_))));
}

// Req: W1
#[test]
fn notifications_are_found_by_an_empty_query_or_left_by_another_statement() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    db.listen().expect("LISTEN");
    assert_eq!(db.poll_notifications(), Ok(vec![]));
    database.run("NOTIFY workqueue; NOTIFY telemetry_changed; NOTIFY other; NOTIFY workqueue");
    assert_eq!(db.poll_notifications(), Ok(vec![Channel::Workqueue, Channel::TelemetryChanged]));
    assert_eq!(db.buffered_notifications(), Ok(vec![]));
    database.run("NOTIFY config_changed");
    assert_eq!(claim(&mut db, &[want("x", 1)]).rows, []);
    assert_eq!(db.buffered_notifications(), Ok(vec![Channel::ConfigChanged]));
}

// Req: W3
// Req: W4
#[test]
fn one_claim_takes_the_oldest_of_each_stage_up_to_its_capacity() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    let a: Vec<i64> = (0..4).map(|_| admit(&mut db, "a")).collect();
    let b: Vec<i64> = (0..2).map(|_| admit(&mut db, "b")).collect();
    let other = admit(&mut db, "ab");
    database.run(&format!(
        "UPDATE pepsi.workqueue SET state = '{{\"strikes\": 2}}' WHERE workqueue_id = {}",
        b[0]
    ));
    database.run(&format!("UPDATE pepsi.workqueue SET status = 'failed' WHERE workqueue_id = {}", a[0]));
    let claims = claim(&mut db, &[want("b", 5), want("a", 2), want("none", 9), want("ab", 0)]);
    assert_eq!(ids(&claims.rows), [("a", a[1]), ("a", a[2]), ("b", b[0]), ("b", b[1])]);
    assert_eq!(claims.rows.iter().map(|row| row.strikes).collect::<Vec<_>>(), [0, 0, 2, 0]);
    assert!(claims.rows.iter().all(|row| row.held.claim == 1 && row.sender == "from:example.org"));
    assert_eq!(claims.due_in_us, None);
    assert_eq!(row(&mut database, a[1])["status"], "running");
    assert_eq!(row(&mut database, other)["status"], "pending");
    let floor = Want { floor: a[3] + 1, ..want("a", 9) };
    assert_eq!(claim(&mut db, &[floor]).rows, []);
    let floor = Want { floor: a[3], ..want("a", 9) };
    assert_eq!(ids(&claim(&mut db, &[floor]).rows), [("a", a[3])]);
    assert_eq!(claim(&mut db, &[]).rows, []);
}

#[test]
fn odd_strikes_and_stages_do_not_stop_a_claim() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    for (strikes, _) in STRIKES {
        let stage = format!("stage '\"%\\ é {strikes}");
        let id = admit(&mut db, &stage);
        database.run(&format!(
            "UPDATE pepsi.workqueue SET state = '{{\"strikes\": {strikes}}}' WHERE workqueue_id = {id}"
        ));
    }
    let wants: Vec<Want> =
        STRIKES.iter().map(|(strikes, _)| want(&format!("stage '\"%\\ é {strikes}"), u32::MAX)).collect();
    let claims = claim(&mut db, &wants);
    let found: Vec<u32> = claims.rows.iter().map(|row| row.strikes).collect();
    assert_eq!(found, STRIKES.map(|(_, expected)| expected));
}

const STRIKES: [(&str, u32); 8] =
    [("0", 0), ("1", 1), ("2.9", 2), ("-3", 0), ("1e300", 1000), ("\"2\"", 0), ("null", 0), ("[1]", 0)];

// Req: W3
#[test]
fn a_locked_row_stops_one_claim_only_until_locked_rows_are_skipped() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    let (first, second) = (admit(&mut db, "a"), admit(&mut db, "a"));
    database.run(&format!("BEGIN; SELECT FROM pepsi.workqueue WHERE workqueue_id = {first} FOR UPDATE"));
    match db.claim(&[want("a", 2)], &[], false, false) {
        Err(Error::Conflict(text)) => {
            assert!(text.contains("claim messages") && text.contains("55P03"), "{text}")
        }
        other => panic!("{other:?}"),
    }
    let claims = db.claim(&[want("a", 2)], &[], true, false).expect("the other row");
    assert_eq!(ids(&claims.rows), [("a", second)]);
    database.run("COMMIT");
    assert_eq!(ids(&claim(&mut db, &[want("a", 2)]).rows), [("a", first)]);
}

// Req: W3
#[test]
fn a_row_that_changes_while_the_claim_waits_for_it_is_not_claimed() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    let id = admit(&mut db, "a");
    database.run(&format!("BEGIN; UPDATE pepsi.workqueue SET status = 'failed' WHERE workqueue_id = {id}"));
    let mut watcher = database.connect();
    let claimer = std::thread::spawn(move || db.claim(&[want("a", 1)], &[], false, false));
    wait_until("the claim waits for the row", PATIENCE, || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        watcher.query_one(waiting, &[]).expect("a count").get::<_, i64>(0) == 1
    });
    database.run("COMMIT");
    match claimer.join().expect("no panic") {
        Ok(claims) => assert_eq!(claims.rows, []),
        // The machine was too slow, and the claim gave up waiting: nothing was claimed either.
        Err(error) => assert!(matches!(error, Error::Conflict(_)), "{error:?}"),
    }
    assert_eq!(row(&mut database, id)["status"], "failed");
}

// Req: D2
// Req: D7
#[test]
fn reconciling_puts_back_what_nobody_holds() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    for _ in 0..4 {
        admit(&mut db, "a");
    }
    let rows = claim(&mut db, &[want("a", 4)]).rows;
    let held = [rows[0].held, Held { id: rows[1].held.id, claim: 9 }];
    assert_eq!(db.reconcile(&held), Ok(vec![]));
    let pending = "SELECT count(*) FROM pepsi.workqueue WHERE status = 'pending'";
    assert_eq!(database.number(pending), 3, "a row that is held under another claim is not ours");
    assert_eq!(row(&mut database, rows[0].held.id)["status"], "running");
    assert_eq!(db.reconcile(&[]), Ok(vec![]));
    assert_eq!(database.number(pending), 4);
}

// Req: D2, W3
#[test]
fn a_reconcile_passes_over_a_locked_row_that_nobody_holds_and_waits_for_one_whose_claim_is_forgotten() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    for _ in 0..2 {
        admit(&mut db, "a");
    }
    let rows = claim(&mut db, &[want("a", 2)]).rows;
    let [first, second] = [rows[0].held, rows[1].held];
    let lock = format!("BEGIN; SELECT FROM pepsi.workqueue WHERE workqueue_id = {} FOR UPDATE", first.id);
    database.run(&lock);
    let forgotten = Held { claim: 9, ..first };
    assert!(matches!(db.reconcile(&[forgotten]), Err(Error::Conflict(_))));
    assert_eq!(db.reconcile(&[]), Ok(vec![first]));
    assert_eq!(row(&mut database, first.id)["status"], "running");
    assert_eq!(row(&mut database, second.id)["status"], "pending");
    database.run("COMMIT");
    assert_eq!(db.requeue(&[first]), Ok(1));
}

// Req: D2, D7
#[test]
fn a_reconcile_and_a_search_for_strays_bear_twenty_thousand_rows_in_hand() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    database.run(
        "INSERT INTO pepsi.workqueue (stage, status, claims, mail_from, rcpt_to, headers)
         SELECT 'a', 'running', 1, 'u@example.org', '{a@example.org}', '' FROM generate_series(1, 20002)",
    );
    let ids = "SELECT array_agg(workqueue_id ORDER BY workqueue_id) FROM pepsi.workqueue";
    let ids: Vec<i64> = database.client.query_one(ids, &[]).expect("the ids").get(0);
    let held: Vec<Held> = ids[2..].iter().map(|id| Held { id: *id, claim: 1 }).collect();
    // Each would take many times its statement_timeout of 10 s if it looked at each row for each row.
    let strays = db.find_strays(&held).expect("strays");
    assert_eq!(strays.iter().map(|stray| stray.held.id).collect::<Vec<_>>(), ids[..2]);
    assert_eq!(db.reconcile(&held), Ok(vec![]));
    assert_eq!(database.number("SELECT count(*) FROM pepsi.workqueue WHERE status = 'pending'"), 2);
}

// Req: D7
#[test]
fn strays_are_the_running_rows_that_nobody_holds_and_stay_as_they_are() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    for _ in 0..4 {
        admit(&mut db, "a");
    }
    let rows = claim(&mut db, &[want("a", 3)]).rows;
    database.run(&format!(
        "UPDATE pepsi.workqueue SET state = jsonb_build_object('strikes', 2) WHERE workqueue_id = {}",
        rows[2].held.id
    ));
    let held = [rows[0].held, Held { id: rows[1].held.id, claim: 9 }];
    let stray = |row: usize, strikes| Stray { stage: "a".into(), held: rows[row].held, strikes };
    assert_eq!(db.find_strays(&held), Ok(vec![stray(1, 0), stray(2, 2)]));
    assert_eq!(database.number("SELECT count(*) FROM pepsi.workqueue WHERE status = 'running'"), 3);
}

type Write = fn(&mut Db, Held) -> Result<bool, Error>;

/// Every write of the dispatcher's about one claimed row.
const WRITES: [(&str, Write); 6] = [
    ("pending", |db, row| db.requeue(&[row]).map(|count| count > 0)),
    ("paused", |db, row| db.pause_claimed(row, 30_000_000, "lost\0")),
    ("paused", |db, row| db.strike(row, 1, 60_000_000, "crashed", "it \u{0}died")),
    ("failed", |db, row| db.condemn(row, 3, "crashed", "it died")),
    ("timeout", |db, row| db.condemn(row, 3, "timed-out", "it hung")),
    ("failed", |db, row| db.fail_claimed(row, "it said 1")),
];

// Req: D4
#[test]
fn every_write_about_a_claimed_row_is_fenced() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    for (status, write) in WRITES {
        let id = admit(&mut db, "a");
        let held = claim_one(&mut db, "a");
        assert_eq!(write(&mut db, Held { claim: held.claim - 1, ..held }), Ok(false), "an earlier claim");
        assert_eq!(write(&mut db, Held { claim: held.claim + 1, ..held }), Ok(false), "a later claim");
        assert_eq!(write(&mut db, Held { id: i64::MAX, ..held }), Ok(false), "no such row");
        assert_eq!(row(&mut database, id)["status"], "running");
        assert_eq!(write(&mut db, held), Ok(true));
        assert_eq!(row(&mut database, id)["status"], status);
        assert_eq!(write(&mut db, held), Ok(false), "it runs no more");
        database.run("DELETE FROM pepsi.workqueue");
    }
}

/// Ever so many of them are repeated, so none may wait.
// Req: W3
#[test]
fn a_write_about_a_locked_row_is_refused_at_once() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    let begun = Instant::now();
    for (status, write) in WRITES {
        let id = admit(&mut db, "a");
        let held = claim_one(&mut db, "a");
        database.run(&format!("BEGIN; SELECT FROM pepsi.workqueue WHERE workqueue_id = {id} FOR UPDATE"));
        let refused = (0..5).all(|_| matches!(write(&mut db, held), Err(Error::Conflict(_))));
        assert!(refused, "{status}");
        database.run("COMMIT");
        assert_eq!(write(&mut db, held), Ok(true));
        database.run("DELETE FROM pepsi.workqueue");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "30 waits would take 30 s: {:?}", begun.elapsed());
}

// Req: E2
// Req: R3
#[test]
fn what_the_dispatcher_writes_says_why() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    let mut state_after = |write: Write| {
        let id = admit(&mut db, "a");
        let held = claim_one(&mut db, "a");
        assert_eq!(write(&mut db, held), Ok(true));
        let row = row(&mut database, id);
        (row["state"].clone(), !row["timeout"].is_null())
    };
    let [_, paused, struck, condemned, hung, failed] = WRITES;
    assert_eq!(state_after(paused.1), (json!({"last_error": "lost"}), true));
    let say = |strikes: u32, class: &str, why: &str| json!({"strikes": strikes, "failure_class": class, "last_error": why, "dispatch_error": why});
    assert_eq!(state_after(struck.1), (say(1, "crashed", "it died"), true));
    assert_eq!(state_after(condemned.1), (say(3, "crashed", "it died"), false));
    assert_eq!(state_after(hung.1), (say(3, "timed-out", "it hung"), false));
    assert_eq!(state_after(failed.1), (json!({"dispatch_error": "it said 1"}), false));
}

/// Sweeps at most so many rows of `a`.
fn sweep(db: &mut Db, rows: u32) -> Swept {
    db.sweep_paused(&[due("a", rows)]).expect("a sweep")
}

fn due(stage: &str, rows: u32) -> DueRows {
    DueRows { stage: stage.into(), rows, since_us: None }
}

// Req: E7
#[test]
fn due_rows_come_back_in_bounded_steps_and_the_next_time_is_told() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    assert_eq!(sweep(&mut db, 10), Swept::default());
    for _ in 0..6 {
        admit(&mut db, "a");
    }
    let held: Vec<Held> = claim(&mut db, &[want("a", 6)]).rows.iter().map(|row| row.held).collect();
    for row in &held[..4] {
        db.pause_claimed(*row, 0, "due").expect("it is ours");
    }
    db.pause_claimed(held[4], 3_600_000_000, "later").expect("it is ours");
    db.pause_claimed(held[5], u64::MAX, "much later").expect("any pause is taken");
    assert_eq!(survey(&mut db, &[want("a", 0)]).due_in_us, Some(0));
    let step = sweep(&mut db, 3);
    assert_eq!((step.rows.len(), step.due_in_us), (3, None));
    let [(stage, since)] = &step.more[..] else { panic!("one more is due: {step:?}") };
    assert_eq!(stage, "a");
    // A sweep that goes on there finds the last one.
    let rest = db.sweep_paused(&[DueRows { since_us: Some(*since), ..due("a", 3) }]).expect("a sweep");
    assert_eq!((rest.rows.len(), rest.more.len()), (1, 0));
    let soon = 3_500_000_000..=3_600_000_000;
    assert!(soon.contains(&rest.due_in_us.expect("one waits")), "{rest:?}");
    let heard = db.claim(&[want("a", 0)], &[held[5].id, held[4].id], false, false).expect("a claim");
    assert!(soon.contains(&heard.due_in_us.expect("one waits")), "{heard:?}");
    assert_eq!(claim(&mut db, &[want("a", 9)]).rows.len(), 4);
    // A held row has no time, and no sweep wakes it.
    database.run("UPDATE pepsi.workqueue SET timeout = NULL");
    assert_eq!(sweep(&mut db, 9), Swept::default());
    assert_eq!(survey(&mut db, &[want("a", 0)]).due_in_us, None);
}

// Req: E8
#[test]
fn a_sweep_gives_each_stage_its_room_and_begins_with_what_is_longest_due() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    let ids: Vec<i64> = (0..10).map(|number| admit(&mut db, if number < 6 { "a" } else { "b" })).collect();
    // The newest are the longest due.
    database.run(
        "UPDATE pepsi.workqueue SET status = 'paused', timeout = now() - workqueue_id * interval '1 min'",
    );
    let step = db.sweep_paused(&[due("a", 2), due("b", 0), due("none", 7)]).expect("a sweep");
    let mut rows = step.rows.clone();
    rows.sort();
    assert_eq!(rows, [("a".to_owned(), ids[4]), ("a".to_owned(), ids[5])]);
    let more: Vec<&str> = step.more.iter().map(|(stage, _)| stage.as_str()).collect();
    assert_eq!(more, ["a", "b"]);
    assert_eq!(db.sweep_paused(&[due("a", 9), due("b", 9)]).expect("a sweep").rows.len(), 8);
}

// Req: W7
#[test]
fn what_waits_at_a_stage_that_nobody_serves_is_told_by_a_survey() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    for stage in ["b", "a", "gone", "gone", "z", "zz", "held", "later"] {
        admit(&mut db, stage);
    }
    let pause = |stage: &str, time: &str| {
        format!("UPDATE pepsi.workqueue SET status = 'paused', timeout = {time} WHERE stage = '{stage}';")
    };
    database.run(&pause("held", "NULL"));
    database.run(&pause("later", "now() + interval '1 hour'"));
    database.run(&pause("zz", "now() - interval '1 hour'"));
    let unserved = |db: &mut Db, stages: &[&str]| -> Vec<(String, u64)> {
        let wants: Vec<Want> = stages.iter().map(|stage| want(stage, 0)).collect();
        let mut found = survey(db, &wants).unserved;
        found.sort();
        found
    };
    let named = |list: &[(&str, u64)]| -> Vec<(String, u64)> {
        list.iter().map(|(stage, count)| ((*stage).to_owned(), *count)).collect()
    };
    assert_eq!(unserved(&mut db, &["b", "a", "c"]), named(&[("gone", 2), ("z", 1), ("zz", 1)]));
    let all = named(&[("a", 1), ("b", 1), ("gone", 2), ("z", 1), ("zz", 1)]);
    assert_eq!(unserved(&mut db, &[]), all);
    assert_eq!(unserved(&mut db, &["a", "b", "gone", "z", "zz"]), []);
    assert_eq!(claim(&mut db, &[want("a", 0)]).unserved, [], "only a survey looks");
    // However many there are, the answer is short.
    database.run(
        "INSERT INTO pepsi.workqueue (stage, mail_from, rcpt_to, headers)
         SELECT 'many' || g % 300, '', '{}', '' FROM generate_series(1, 3000) g;
         INSERT INTO pepsi.workqueue (stage, mail_from, rcpt_to, headers)
         SELECT 'a', '', '{}', '' FROM generate_series(1, 3000)",
    );
    let many = unserved(&mut db, &["b"]);
    assert_eq!((many.len(), many[0].clone()), (100, ("a".to_owned(), 1000)));
}

// Req: E7
#[test]
fn a_sweep_passes_over_a_locked_row_without_a_spin() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    let (id, _) = (admit(&mut db, "a"), admit(&mut db, "a"));
    database.run("UPDATE pepsi.workqueue SET status = 'paused', timeout = now()");
    database.run(&format!("BEGIN; SELECT FROM pepsi.workqueue WHERE workqueue_id = {id} FOR UPDATE"));
    let step = sweep(&mut db, 9);
    assert_eq!((step.rows.len(), step.due_in_us), (1, Some(1_000_000)));
    database.run("ROLLBACK");
    let step = sweep(&mut db, 9);
    assert_eq!((step.rows.len(), step.due_in_us), (1, None));
}

// Req: K1
// Req: K2
// Req: K3
#[test]
fn a_flush_adds_and_counts_each_finished_message_once() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    let stays = admit(&mut db, "a");
    let gone = admit(&mut db, "a");
    database.run(&format!("DELETE FROM pepsi.workqueue WHERE workqueue_id = {gone}"));
    let count = |stage: &str, messages| StageCount {
        stage: stage.into(),
        messages,
        processing_us: 7,
        timeouts: 1,
        crashes: 2,
    };
    db.flush(&[count("a", 1), count("b", 2), count("a", 3)], 5, 1, 0, &[stays, gone, gone], 8)
        .expect("a flush");
    db.flush(&[count("a", 1)], 1, 0, 2, &[], 3).expect("a flush");
    let stages = "SELECT jsonb_agg(to_jsonb(s) ORDER BY stage)::text FROM pepsi.stage_stats s";
    let stages: Value = serde_json::from_str(&database.text(stages)).expect("JSON");
    let row = |stage: &str, messages: u32, n: u32| json!({"stage": stage, "messages": messages, "processing_us": 7 * n, "timeouts": n, "crashes": 2 * n});
    assert_eq!(stages, json!([row("a", 5, 3), row("b", 2, 1)]));
    let total: Value =
        serde_json::from_str(&database.text("SELECT to_jsonb(d)::text FROM pepsi.dispatch_stats d"))
            .expect("JSON");
    let expected = json!({"only_row": true, "stages_executed": 6, "messages_finished": 1, "messages_failed": 1,
        "serialization_failures": 2, "unserved": 3});
    assert_eq!(total, expected);
}

// Req: K4
#[test]
fn bodies_are_collected_up_to_the_limit() {
    let mut database = harness::database();
    let mut db = dispatcher(&database);
    admit(&mut db, "a");
    database.run("INSERT INTO pepsi.workqueue_body (body) SELECT '' FROM generate_series(1, 5)");
    assert_eq!(db.collect_bodies(3), Ok(3));
    assert_eq!(db.collect_bodies(3), Ok(2));
    assert_eq!(db.collect_bodies(3), Ok(0));
}
