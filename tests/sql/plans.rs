//! Which index each statement rides on, seen in the plans that the server itself logs of real connections (auto_explain):
//! with a deep queue, and with plans made while the table was empty and never analyzed.

use super::harness::{Database, Options, Postgres};
use super::sql::batch::Write;
use super::sql::claim::{Listed, Want};
use super::sql::queue::{DueRows, Held, StageCount};
use super::sql::row::{Content, Load, Move};
use super::sql::{Db, Purpose};
use super::{ALONE, WORKER, admit, claim_one, open, survey, want};
use serde_json::json;

/// Rows of the deep queue; every twentieth is paused, half of those are due.
const DEEP: u32 = 100_000;
/// A survey counts a thousand pending and a thousand paused rows of each stage; of a stage more than that wait.
const MOST: f64 = 2_000.0;

const FILL: &str = "SET auto_explain.log_min_duration = -1;
    INSERT INTO pepsi.workqueue_body (body) SELECT '' FROM generate_series(1, 1000);
    INSERT INTO pepsi.workqueue (stage, status, timeout, mail_from, rcpt_to, headers, body_id)
    SELECT 's' || g % 5,
           CASE WHEN g % 20 = 0 THEN 'paused' WHEN g % 50 = 2 THEN 'failed' ELSE 'pending' END::pepsi.queue_status,
           CASE WHEN g % 40 = 0 THEN now() - interval '1 s' WHEN g % 20 = 0 THEN now() + interval '1 h' END,
           'u@d' || g % 100, '{a@b}', '', (SELECT max(body_id) FROM pepsi.workqueue_body) - g % 1000
    FROM generate_series(1, $1::integer) g";

fn server() -> (Postgres, Database) {
    let settings = [
        ("session_preload_libraries", "auto_explain"),
        ("auto_explain.log_min_duration", "0"),
        ("auto_explain.log_analyze", "on"),
        ("auto_explain.log_timing", "off"),
        ("auto_explain.log_buffers", "on"),
        ("auto_explain.log_nested_statements", "on"),
        ("auto_explain.log_triggers", "on"),
        ("autovacuum", "off"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), format!("'{value}'"))).to_vec();
    let server = Postgres::start(Options { settings, ..Options::default() });
    let database = server.database();
    (server, database)
}

/// Runs `work` and returns the plans of every statement in it.
fn plans(server: &Postgres, work: impl FnOnce()) -> String {
    let before = server.log().len();
    work();
    server.log()[before..].to_owned()
}

/// The indexes by which the queue and its bodies were read, and whether each was searched or walked from its beginning.
fn reads(plans: &str) -> Vec<(String, bool)> {
    let lines: Vec<&str> = plans.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some((kind, rest)) = line.split_once(" on workqueue") else { continue };
        // Query texts are logged too; a node of a plan has its costs.
        if !kind.contains("Scan") || kind.contains("Function") || !line.contains("(cost=") {
            continue;
        }
        assert!(kind.contains("Index") && kind.contains(" using "), "{line}, _{rest}, in\n{plans}");
        let index = kind.rsplit(' ').next().unwrap_or_default();
        let is_search = lines.get(number + 1).is_some_and(|next| next.starts_with("Index Cond:"));
        found.push((index.to_owned(), is_search));
    }
    found
}

/// The number behind `label`, where the line has it.
fn number(line: &str, label: &str) -> Option<f64> {
    let digits = line.split_once(label)?.1;
    digits[..digits.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(digits.len())].parse().ok()
}

/// No part of a plan meets more rows than a statement has a use for, neither to sort them nor to pass most of them over; nor more
/// pages, such as those of an index whose entries are passed over.
#[track_caller]
fn meets_few(plans: &str, most: f64) {
    for line in plans.lines() {
        let met = number(line, "(actual rows=").or_else(|| number(line, "Rows Removed by Filter: "));
        let rows = met.unwrap_or(0.0) * number(line, " loops=").unwrap_or(1.0);
        let is_buffers = line.trim_start().starts_with("Buffers: ");
        let pages =
            [" hit=", " read="].map(|label| number(line, label).filter(|_| is_buffers).unwrap_or(0.0));
        assert!(rows <= most && pages[0] + pages[1] <= 5.0 * most, "{line} in\n{plans}");
    }
}

/// Exactly these indexes were used; one that begins with `*` was walked from its beginning, in its order.
#[track_caller]
fn rides_on(plans: &str, indexes: &[&str]) {
    meets_few(plans, MOST);
    for node in ["Hash Join", "Merge Join"] {
        assert!(!plans.contains(node), "{node} in\n{plans}");
    }
    let mut found: Vec<String> = reads(plans)
        .into_iter()
        .map(|(index, is_search)| if is_search { index } else { format!("*{index}") })
        .collect();
    found.sort();
    found.dedup();
    assert_eq!(found, indexes, "in\n{plans}");
}

fn each_statement_rides_on_its_index(server: &Postgres, dispatcher: &mut Db, worker: &mut Db) {
    let mut held = Held { id: 0, claim: 0 };
    for skip_locked in [false, true] {
        let claimed = plans(server, || {
            let wants = [want("s1", 3), want("none", 9), want("s2", 3)];
            held = dispatcher.claim(&wants, &[], skip_locked, false).expect("a claim").rows[0].held;
        });
        rides_on(&claimed, &["workqueue_pending", "workqueue_pkey"]);
    }
    let fair = plans(server, || {
        let listed = Listed { sender: "from:d1".into(), lead_us: 5, floor: Some(0), rows: 3 };
        // They have nothing, and who follows them in the index has a lot.
        let absent = (0..9).map(|n| Listed { sender: format!("from:d0{n}"), ..listed.clone() });
        let senders = absent.chain([listed.clone()]).collect();
        let want = Want { fifo_slots: 1, visits: 3, senders, ..want("s1", 3) };
        assert_eq!(dispatcher.claim(&[want], &[1, 2], false, false).expect("a claim").rows.len(), 3);
    });
    rides_on(&fair, &["workqueue_fair", "workqueue_pending", "workqueue_pkey"]);
    // 32 new rows, the oldest ones, and one of each sender visited.
    meets_few(&fair, 64.0);
    let surveyed = plans(server, || drop(survey(dispatcher, &[want("s1", 0), want("s3", 0)])));
    rides_on(&surveyed, &["workqueue_due", "workqueue_pending"]);
    rides_on(
        &plans(server, || assert!(dispatcher.reconcile(&[held]).is_ok())),
        &["*workqueue_running", "workqueue_pkey"],
    );
    rides_on(&plans(server, || assert!(dispatcher.find_strays(&[held]).is_ok())), &["*workqueue_running"]);
    let due = |stage: &str, since_us| DueRows { stage: stage.into(), rows: 5, since_us };
    let stages = [due("s0", None), due("none", None), due("s1", Some(1))];
    let swept = plans(server, || assert!(dispatcher.sweep_paused(&stages).is_ok()));
    rides_on(&swept, &["workqueue_due", "workqueue_pkey"]);
    let count = StageCount { stage: "s1".into(), messages: 1, processing_us: 1, timeouts: 0, crashes: 0 };
    let flushed = plans(server, || dispatcher.flush(&[count], 1, 0, 0, &[held.id, 1, 2], 0).expect("done"));
    rides_on(&flushed, &["workqueue_pkey"]);
    let collected = plans(server, || assert!(dispatcher.collect_bodies(100).is_ok()));
    rides_on(&collected, &["workqueue_body_pkey", "workqueue_body_ref"]);
    let requeued = plans(server, || assert_eq!(dispatcher.requeue(&[Held { id: 1, claim: 99 }]), Ok(0)));
    rides_on(&requeued, &["workqueue_pkey"]);

    let loaded = plans(server, || {
        for load in [Load::Metadata, Load::Headers, Load::Full] {
            assert!(worker.load(held.id, load).expect("a load").is_some());
        }
    });
    rides_on(&loaded, &["workqueue_body_pkey", "workqueue_pkey"]);
    let loaded = plans(server, || {
        assert_eq!(worker.load_some(&[held.id, 1, 2], Load::Metadata).expect("a load").len(), 3)
    });
    rides_on(&loaded, &["workqueue_body_pkey", "workqueue_pkey"]);
    let other = Held { claim: held.claim + 100, ..held };
    let moves = [Move::Advance { stage: "x".into() }, Move::Pause { pause_us: 1 }, Move::Fail, Move::Finish];
    let mut all_moves = |content: &Content| {
        for to in &moves {
            assert_eq!(
                worker.commit(other.id, other.claim, content, &json!({}), to),
                Ok(false),
                "another claim"
            );
        }
    };
    let fenced = plans(server, || {
        assert_eq!(dispatcher.pause_claimed(other, 1, "x"), Ok(false));
        assert_eq!(dispatcher.strike(other, 1, 1, "crashed", "x"), Ok(false));
        assert_eq!(dispatcher.condemn(other, 3, "crashed", "x"), Ok(false));
        assert_eq!(dispatcher.fail_claimed(other, "x"), Ok(false));
        all_moves(&Content::default());
    });
    rides_on(&fenced, &["workqueue_running"]);
    let rewritten = plans(server, || all_moves(&Content { body: Some(Some(vec![1])), ..Content::default() }));
    rides_on(&rewritten, &["workqueue_pkey", "workqueue_running"]);
    let fenced = plans(server, || {
        let (nothing, empty) = (Content::default(), json!({}));
        let sender = Content { mail_from: Some("x@y".into()), ..Content::default() };
        let write = |content, to| Write { row: other, content, merge: &empty, to, fan: &ALONE };
        let all: Vec<Write<'_>> =
            moves.iter().map(|to| write(&nothing, to)).chain([write(&sender, &moves[0])]).collect();
        assert_eq!(worker.commit_batch(&all), vec![Ok(false); 5], "another claim");
    });
    rides_on(&fenced, &["workqueue_pkey"]);
    let finished = plans(server, || {
        assert_eq!(
            worker.commit(held.id, held.claim, &Content::default(), &json!({}), &Move::Finish),
            Ok(true)
        );
    });
    rides_on(&finished, &["workqueue_body_pkey", "workqueue_body_ref", "workqueue_running"]);
}

// Req: W4
#[test]
fn no_statement_scans_a_deep_queue() {
    let (server, mut database) = server();
    let mut filler = database.connect();
    filler.batch_execute(&FILL.replace("$1", &DEEP.to_string())).expect("a deep queue");
    database.run("ANALYZE pepsi.workqueue; ANALYZE pepsi.workqueue_body");
    let (mut dispatcher, mut worker) = (open(&database, Purpose::Dispatcher), open(&database, WORKER));
    each_statement_rides_on_its_index(&server, &mut dispatcher, &mut worker);
}

// Req: W4
#[test]
fn a_plan_made_for_an_empty_table_still_rides_on_the_index_when_a_burst_has_filled_it() {
    let (server, database) = server();
    let (mut dispatcher, mut worker) = (open(&database, Purpose::Dispatcher), open(&database, WORKER));
    // Every statement is prepared and planned now.
    for _ in 0..10 {
        admit(&mut worker, "s1");
    }
    each_statement_rides_on_its_index(&server, &mut dispatcher, &mut worker);
    let mut filler = database.connect();
    filler.batch_execute(&FILL.replace("$1", "20000")).expect("a burst");
    each_statement_rides_on_its_index(&server, &mut dispatcher, &mut worker);
    claim_one(&mut dispatcher, "s1");
}

/// Of an idle pipeline the server knows that its queue is empty, or nothing; then everything comes at once.
#[track_caller]
fn a_burst_is_met(before: &str) {
    let (server, mut database) = server();
    database.run(before);
    let mut filler = database.connect();
    filler.batch_execute(&FILL.replace("$1", "50000")).expect("a burst");
    let (mut dispatcher, mut worker) = (open(&database, Purpose::Dispatcher), open(&database, WORKER));
    each_statement_rides_on_its_index(&server, &mut dispatcher, &mut worker);
}

// Req: W4
#[test]
fn a_burst_into_a_queue_without_statistics_is_met_by_the_indexes() {
    a_burst_is_met("SELECT");
}

// Req: W4
#[test]
fn a_burst_into_a_queue_that_was_empty_when_it_was_analyzed_is_met_by_the_indexes() {
    a_burst_is_met("VACUUM (ANALYZE) pepsi.workqueue");
}
