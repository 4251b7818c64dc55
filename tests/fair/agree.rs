//! The SQL function takes and reports exactly what the model does (requirement F9), of thousands of random queues; and it takes
//! it as W3 says.

use crate::claim::{Claim, Reply};
use crate::fair::choose::{Choice, Row, choose};
use crate::fair::{Ask, Listed, Notice};
use crate::harness::{self, Database};
use crate::prng::Prng;
use std::collections::{BTreeMap, BTreeSet};

const STAGES: [&str; 3] = ["alpha", "beta", "gamma"];
/// A stage that has rows and is never asked for.
const OTHER: &str = "delta";

/// So many queues, so many claims of each.
const QUEUES: u64 = 2_000;
const CLAIMS: u64 = 2;

/// What the queues and claims have to be like, so that the comparison says something: of each at least so many.
const KINDS: [(&str, u32); 14] = [
    ("one row is taken", 500),
    ("rows of several stages are taken", 300),
    ("more waits than there is room for", 2_000),
    ("a FIFO slot besides others", 300),
    ("more than 64 senders wait", 100),
    ("more than 64 senders are listed or visited", 10),
    ("the window goes on behind a sender", 100),
    ("a lead below zero", 300),
    ("no lead", 300),
    ("a lead that is far ahead", 30),
    ("a sender takes more than one row", 300),
    ("a sender that is not listed gets a row", 300),
    ("a row has moved", 300),
    ("a locked row is passed over", 100),
];

type Met = BTreeMap<&'static str, u32>;

fn key(sender: u64) -> String {
    format!("from:s{sender}")
}

/// Fills the table anew; the waiting rows of STAGES, by age.
fn fill(db: &mut Database, prng: &mut Prng, case: u64) -> Vec<Row> {
    // The entries of deleted rows stay for a while; a claim that begins at the first one reads them.
    db.run(if case.is_multiple_of(100) { "TRUNCATE pepsi.workqueue" } else { "DELETE FROM pepsi.workqueue" });
    let is_long = prng.chance(60);
    let senders = if is_long { 300 } else { prng.pick(&[1, 2, 3, 8, 40, 200]) };
    let count = if is_long { 400 } else { prng.below(120) };
    let mut id = 0;
    let mut rows = Vec::new();
    let mut queue = Vec::new();
    for _ in 0..count {
        id += prng.between(1, 4) as i64;
        // Skewed: the first have most.
        let sender = prng.below(if is_long { senders } else { prng.clone().between(1, senders) });
        let stage = prng.below(if is_long { 2 } else { STAGES.len() as u64 + 1 }) as usize;
        let name = STAGES.get(stage).copied().unwrap_or(OTHER);
        let status = prng.pick(&["pending", "pending", "pending", "pending", "running", "paused", "failed"]);
        rows.push(format!("({id}, '{name}', '{status}', 'x@s{sender}', '{{}}', '', {})", prng.below(5)));
        if status == "pending" && stage < STAGES.len() {
            queue.push(Row { id, stage, sender: key(sender) });
        }
    }
    if !rows.is_empty() {
        db.run(&format!(
            "INSERT INTO pepsi.workqueue (workqueue_id, stage, status, mail_from, rcpt_to, headers, claims)
             OVERRIDING SYSTEM VALUE VALUES {}",
            rows.join(", ")
        ));
    }
    queue
}

fn demand(prng: &mut Prng, queue: &[Row]) -> Ask {
    let capacity = prng.pick(&[0, 1, 1, 2, 3, 5, 16, 40]);
    let last = queue.last().map_or(1, |row| row.id as u64 + 3);
    let mut senders: BTreeMap<String, Listed> = BTreeMap::new();
    let among = prng.pick(&[10, 250]);
    for _ in 0..prng.pick(&[0, 1, 3, 12, 120]) {
        let sender = key(prng.below(among));
        let lead = prng.between(0, 8) as i64 - 4;
        let lead = lead * prng.pick(&[0, 1, 10, 1_000, 1_000_000_000_000]);
        let floor = prng.chance(800).then(|| prng.below(last) as i64 * prng.pick(&[0, 1]));
        let rows = prng.between(0, u64::from(capacity)) as u32;
        senders.insert(sender.clone(), Listed { sender, lead, floor, rows });
    }
    Ask {
        capacity,
        fifo_slots: prng.pick(&[0, 0, 1, capacity / 2, capacity]).min(capacity),
        average: prng.pick(&[1, 2, 10, 1_000, 10_000_000_000]),
        floor: prng.pick(&[0, 0, prng.clone().below(last) as i64]),
        mark: prng.pick(&[0, i64::MAX, prng.clone().below(last) as i64]),
        visits: prng.pick(&[0, 0, 1, 3, 16]),
        cursor: prng.pick(&["", "", "from:s1", "from:s2", "from:s7", "z"]).to_owned(),
        unlisted: prng.pick(&[0, 0, 10, 2_000, 4_000_000_000_000]),
        senders: senders.into_values().collect(),
    }
}

/// Rows by stage and id.
type Taken = BTreeSet<(usize, i64)>;

/// What the model takes around the rows of `locked`: of what it wants what is free, then the oldest free ones. Where any was
/// passed over the notices prove nothing, and are none here.
fn choose_around(
    queue: &[Row],
    demands: &[Ask],
    touched: &[i64],
    locked: &[i64],
) -> (Taken, Option<BTreeSet<(usize, Notice)>>) {
    let Choice { mut taken, notices } = choose(queue, demands, touched);
    let wanted = taken.len();
    taken.retain(|(_, id)| !locked.contains(id));
    if taken.len() == wanted {
        return (taken, Some(notices));
    }
    for (stage, demand) in demands.iter().enumerate() {
        let here = || queue.iter().filter(|row| row.stage == stage);
        let moved = here().map(|row| row.id).filter(|id| touched.contains(id));
        let floor = moved.chain([demand.floor]).min().unwrap_or(0);
        let count = taken.iter().filter(|(other, _)| *other == stage).count();
        let free: Vec<i64> = here()
            .map(|row| row.id)
            .filter(|id| *id >= floor && !locked.contains(id) && !taken.contains(&(stage, *id)))
            .take(demand.capacity as usize - count)
            .collect();
        taken.extend(free.into_iter().map(|id| (stage, id)));
    }
    (taken, None)
}

/// Whatever does not agree, in words.
fn compare(
    reply: &Reply,
    model: &Taken,
    model_notices: Option<&BTreeSet<(usize, Notice)>>,
) -> Result<(), String> {
    let taken: Taken = reply.rows.iter().map(|row| (row.stage, row.id)).collect();
    let notices: BTreeSet<_> = reply.notices.iter().cloned().collect();
    if taken.len() != reply.rows.len() {
        return Err("a row is returned twice".to_owned());
    }
    if taken != *model {
        return Err(format!("taken {taken:?}, by the model {model:?}"));
    }
    if let Some(others) = model_notices.filter(|others| notices != **others) {
        let more: Vec<_> = notices.difference(others).collect();
        let less: Vec<_> = others.difference(&notices).collect();
        return Err(format!("notices of the function alone {more:?}, of the model alone {less:?}"));
    }
    Ok(())
}

/// Which of KINDS this claim of one stage was.
fn note_kinds(met: &mut Met, stage: usize, queue: &[Row], demand: &Ask, reply: &Reply) {
    let mut note = |kind, holds: bool| *met.entry(kind).or_default() += u32::from(holds);
    let here: Vec<&Row> = queue.iter().filter(|row| row.stage == stage).collect();
    let waiting: BTreeSet<&str> = here.iter().map(|row| row.sender.as_str()).collect();
    let taken: Vec<&str> =
        reply.rows.iter().filter(|row| row.stage == stage).map(|row| row.sender.as_str()).collect();
    let by_lead = demand.fifo_slots < demand.capacity && here.len() > demand.capacity as usize;
    let listed = |sender: &str| demand.senders.iter().find(|listed| listed.sender == sender);
    let leads: Vec<i64> = taken
        .iter()
        .filter_map(|sender| listed(sender))
        .map(|listed| listed.lead)
        .filter(|_| by_lead)
        .collect();
    let cursor = |notice: &(usize, Notice)| notice.0 == stage && matches!(notice.1, Notice::Cursor { .. });
    note("one row is taken", demand.capacity == 1 && taken.len() == 1);
    note("more waits than there is room for", by_lead);
    note("a FIFO slot besides others", by_lead && demand.fifo_slots > 0);
    note("more than 64 senders wait", by_lead && waiting.len() > 64);
    let read = demand.senders.iter().filter(|listed| listed.floor.is_some()).count() + demand.visits as usize;
    note("more than 64 senders are listed or visited", by_lead && waiting.len() > 64 && read > 64);
    note("the window goes on behind a sender", reply.notices.iter().any(cursor));
    note("a lead below zero", leads.iter().any(|lead| *lead < 0));
    note("no lead", leads.contains(&0));
    note("a lead that is far ahead", leads.iter().any(|lead| *lead >= 1_000_000_000_000));
    note("a sender takes more than one row", taken.iter().collect::<BTreeSet<_>>().len() < taken.len());
    note(
        "a sender that is not listed gets a row",
        by_lead && taken.iter().any(|sender| listed(sender).is_none()),
    );
}

// Req: F3
// Req: F6
// Req: F7
// Req: F9
#[test]
fn the_function_takes_and_reports_what_the_model_does() {
    let mut db = harness::database();
    let mut holder = db.connect();
    let mut prng = Prng::new(1);
    let mut met = Met::new();
    let claim = Claim::prepare(&mut db.client);
    for case in 0..QUEUES {
        let queue = fill(&mut db, &mut prng, case);
        for _ in 0..CLAIMS {
            let demands: Vec<Ask> = STAGES.iter().map(|_| demand(&mut prng, &queue)).collect();
            let last = queue.last().map_or(1, |row| row.id as u64 + 3);
            let touched: Vec<i64> = (0..prng.pick(&[0, 0, 1, 7])).map(|_| prng.below(last) as i64).collect();
            let skip_locked = prng.chance(200);
            let count = if skip_locked { prng.below(20) } else { 0 };
            let locked: Vec<i64> = (0..count).map(|_| prng.below(last.min(40)) as i64).collect();
            let mut holding = holder.transaction().expect("a transaction");
            if !locked.is_empty() {
                let lock = "SELECT FROM pepsi.workqueue WHERE workqueue_id = ANY ($1) FOR UPDATE";
                holding.execute(lock, &[&locked]).expect("rows to lock");
            }
            let mut transaction = db.client.transaction().expect("a transaction");
            let reply = claim.run(&mut transaction, &STAGES, &demands, &touched, skip_locked);
            transaction.rollback().expect("a rollback");
            holding.rollback().expect("a rollback");
            let (model, notices) = choose_around(&queue, &demands, &touched, &locked);
            if let Err(text) = compare(&reply, &model, notices.as_ref()) {
                panic!(
                    "queue {case}: {text}\n{queue:?}\n{demands:?}\ntouched {touched:?}, locked {locked:?}"
                );
            }
            for (stage, demand) in demands.iter().enumerate() {
                let taken = reply.rows.iter().filter(|row| row.stage == stage).count();
                assert!(taken <= demand.capacity as usize, "more than the capacity");
                note_kinds(&mut met, stage, &queue, demand, &reply);
            }
            let stages: BTreeSet<usize> = reply.rows.iter().map(|row| row.stage).collect();
            *met.entry("rows of several stages are taken").or_default() += u32::from(stages.len() > 1);
            let moved = queue.iter().any(|row| touched.contains(&row.id));
            *met.entry("a row has moved").or_default() += u32::from(moved);
            let passed = notices.is_none();
            *met.entry("a locked row is passed over").or_default() += u32::from(passed);
        }
    }
    for (kind, least) in KINDS {
        assert!(met.get(kind).is_some_and(|count| *count >= least), "{kind}: too seldom in {met:?}");
    }
}

/// One stage's demand that takes the oldest rows.
fn oldest(capacity: u32) -> Ask {
    Ask { capacity, fifo_slots: capacity, average: 1, mark: i64::MAX, ..Ask::default() }
}

fn add(db: &mut Database, stage: &str, sender: &str, state: &str) -> i64 {
    let query = format!(
        "INSERT INTO pepsi.workqueue (stage, mail_from, rcpt_to, headers, state)
         VALUES ('{stage}', 'x@{sender}', '{{}}', '', '{state}') RETURNING workqueue_id"
    );
    db.number(&query)
}

// Req: W3
#[test]
fn a_claim_makes_rows_running_under_a_new_number_and_says_what_is_due() {
    let mut db = harness::database();
    let claim = Claim::prepare(&mut db.client);
    let odd = add(&mut db, "alpha", "one", r#"{"strikes": "many"}"#);
    let struck = add(&mut db, "alpha", "two", r#"{"strikes": 2}"#);
    let reply = claim.run(&mut db.client, &STAGES[..1], &[oldest(4)], &[], false);
    let rows: Vec<_> = reply.rows.iter().map(|row| (row.id, row.claim, row.strikes)).collect();
    assert_eq!(rows, [(odd, 1, 0), (struck, 1, 2)]);
    assert_eq!((reply.due_in_us, reply.top), (None, struck));
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue WHERE status = 'running' AND claims = 1"), 2);
    db.run("UPDATE pepsi.workqueue SET status = 'paused', timeout = now() + interval '1 hour'");
    let later = claim.run(&mut db.client, &STAGES[..1], &[oldest(4)], &[odd, struck], false);
    assert!(later.rows.is_empty() && (3_599_000_000..=3_600_000_000).contains(&later.due_in_us.unwrap_or(0)));
    db.run("UPDATE pepsi.workqueue SET timeout = now() - interval '1 hour'");
    let overdue = claim.run(&mut db.client, &STAGES[..1], &[oldest(4)], &[struck], false).due_in_us;
    assert!(overdue.is_some_and(|due| due < -3_599_000_000), "{overdue:?}");
    let untold = claim.run(&mut db.client, &STAGES[..1], &[oldest(4)], &[], false).due_in_us;
    assert_eq!(untold, None, "of rows that were not touched a survey tells");
}

// Req: W3
#[test]
fn a_locked_row_is_passed_over_and_its_stage_still_served() {
    let mut db = harness::database();
    let claim = Claim::prepare(&mut db.client);
    let ids: Vec<i64> = (0..5).map(|_| add(&mut db, "alpha", "one", "{}")).collect();
    let other = add(&mut db, "beta", "one", "{}");
    let mut holder = db.connect();
    let mut lock = holder.transaction().expect("a transaction");
    let locked = [ids[0], ids[2]];
    lock.execute(
        "SELECT FROM pepsi.workqueue WHERE workqueue_id = ANY ($1) FOR UPDATE",
        &[&locked.as_slice()],
    )
    .expect("rows to lock");
    let demands = [oldest(2), oldest(2)];
    db.run("SET lock_timeout = '50ms'");
    let waiting = db.client.query_one(
        "SELECT count(*) FROM pepsi.workqueue_claim_fair('{alpha}', '{1}', '{1}', '{1}', '{0}',
        '{0}', '{0}', '{\"\"}', '{0}', '{}', '{}', '{}', '{}', '{}', '{}', false, false)",
        &[],
    );
    assert!(waiting.is_err(), "a claim that does not skip waits for the lock");
    let reply = claim.run(&mut db.client, &STAGES[..2], &demands, &[], true);
    let taken: Vec<i64> = reply.rows.iter().map(|row| row.id).collect();
    assert_eq!(taken, [ids[1], ids[3], other]);
    lock.rollback().expect("a rollback");
    let reply = claim.run(&mut db.client, &STAGES[..2], &demands, &[], false);
    assert_eq!(reply.rows.iter().map(|row| row.id).collect::<Vec<_>>(), locked);
}

// Req: W3
#[test]
fn however_many_rows_are_locked_the_others_are_taken() {
    let mut db = harness::database();
    let claim = Claim::prepare(&mut db.client);
    let fill = "INSERT INTO pepsi.workqueue (stage, mail_from, rcpt_to, headers)
        SELECT (ARRAY['alpha', 'beta'])[1 + n % 2], 'x@' || n % 7, '{}', '' FROM generate_series(0, 3999) n";
    db.run(fill);
    let mut holder = db.connect();
    let mut lock = holder.transaction().expect("a transaction");
    let all_but_some =
        "SELECT FROM pepsi.workqueue WHERE stage = 'alpha' AND workqueue_id <= 3900 FOR UPDATE";
    lock.execute(all_but_some, &[]).expect("rows to lock");
    for fifo_slots in [16, 1] {
        let demands = [Ask { fifo_slots, ..oldest(16) }, Ask { fifo_slots, ..oldest(16) }];
        let reply = claim.run(&mut db.client, &STAGES[..2], &demands, &[], true);
        let count = |stage| reply.rows.iter().filter(|row| row.stage == stage).count();
        assert_eq!((count(0), count(1)), (16, 16), "{fifo_slots} FIFO slots");
        assert!(reply.rows.iter().all(|row| row.stage == 1 || row.id > 3900));
    }
    lock.rollback().expect("a rollback");
}

// Req: W3
#[test]
fn a_row_that_changes_under_the_claim_is_left_alone() {
    let mut db = harness::database();
    let claim = Claim::prepare(&mut db.client);
    let ids = [add(&mut db, "alpha", "one", "{}"), add(&mut db, "alpha", "two", "{}")];
    let mut holder = db.connect();
    let mut change = holder.transaction().expect("a transaction");
    change
        .execute("UPDATE pepsi.workqueue SET status = 'paused' WHERE workqueue_id = $1", &[&ids[0]])
        .expect("a row to hold");
    let backend = db.number("SELECT pg_backend_pid()::bigint");
    let claimer = std::thread::spawn(move || {
        let reply = claim.run(&mut db.client, &STAGES[..1], &[oldest(2)], &[], false);
        reply.rows.iter().map(|row| row.id).collect::<Vec<_>>()
    });
    harness::wait_until("the claim waits for the row", harness::PATIENCE, || {
        let query =
            "SELECT count(*) FROM pg_stat_activity WHERE pid = $1::bigint AND wait_event_type = 'Lock'";
        change.query_one(query, &[&backend]).is_ok_and(|row| row.get::<_, i64>(0) == 1)
    });
    change.commit().expect("a commit");
    assert_eq!(claimer.join().expect("a claim"), [ids[1]]);
}
