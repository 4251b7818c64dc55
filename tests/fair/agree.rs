//! The SQL function takes and reports exactly what the model does (requirement F9), and takes it as W3 says.

use crate::claim::{Claim, Reply};
use crate::fair::choose::{Row, choose};
use crate::fair::{Ask, Listed};
use crate::harness::{self, Database};
use crate::prng::Prng;
use std::collections::{BTreeMap, BTreeSet};

const STAGES: [&str; 3] = ["alpha", "beta", "gamma"];
/// A stage that has rows and is never asked for.
const OTHER: &str = "delta";

/// So many queues, so many claims of each.
const QUEUES: u64 = 250;
const CLAIMS: u64 = 16;

fn key(sender: u64) -> String {
    format!("from:s{sender}")
}

/// Fills the table anew; the waiting rows of STAGES, by age.
fn fill(db: &mut Database, prng: &mut Prng) -> Vec<Row> {
    db.run("DELETE FROM pepsi.workqueue");
    let senders = prng.pick(&[1, 2, 3, 8, 40, 200]);
    let mut id = 0;
    let mut rows = Vec::new();
    let mut queue = Vec::new();
    for _ in 0..prng.below(120) {
        id += prng.between(1, 4) as i64;
        // Skewed: the first have most.
        let sender = prng.below(prng.clone().between(1, senders));
        let stage = prng.below(STAGES.len() as u64 + 1) as usize;
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
    for _ in 0..prng.pick(&[0, 1, 3, 12, 60]) {
        let sender = key(prng.pick(&[0, 1, 2, 3, 5, 9, 30, 250]).min(prng.below(250)));
        let lead = prng.below(4) as i64 * prng.pick(&[0, 1, 10, 1_000]);
        let floor = prng.chance(800).then(|| prng.below(last) as i64 * prng.pick(&[0, 1]));
        let rows = prng.between(0, u64::from(capacity)) as u32;
        senders.insert(sender.clone(), Listed { sender, lead, floor, rows });
    }
    Ask {
        capacity,
        fifo_slots: prng.pick(&[0, 0, 1, capacity / 2, capacity]).min(capacity),
        average: prng.pick(&[1, 2, 10, 1_000]),
        floor: prng.pick(&[0, 0, prng.clone().below(last) as i64]),
        mark: prng.pick(&[0, i64::MAX, prng.clone().below(last) as i64]),
        visits: prng.pick(&[0, 0, 1, 3, 16]),
        cursor: prng.pick(&["", "", "from:s1", "from:s2", "from:s7", "z"]).to_owned(),
        unlisted: prng.pick(&[0, 0, 10, 2_000]),
        senders: senders.into_values().collect(),
    }
}

/// Whatever does not agree, in words.
fn compare(reply: &Reply, queue: &[Row], demands: &[Ask], touched: &[i64]) -> Result<(), String> {
    let model = choose(queue, demands, touched);
    let taken: BTreeSet<(usize, i64)> = reply.rows.iter().map(|row| (row.stage, row.id)).collect();
    let notices: BTreeSet<_> = reply.notices.iter().cloned().collect();
    if taken.len() != reply.rows.len() {
        return Err("a row is returned twice".to_owned());
    }
    if taken != model.taken {
        return Err(format!("taken {taken:?}, by the model {:?}", model.taken));
    }
    if notices != model.notices {
        let more: Vec<_> = notices.difference(&model.notices).collect();
        let less: Vec<_> = model.notices.difference(&notices).collect();
        return Err(format!("notices of the function alone {more:?}, of the model alone {less:?}"));
    }
    Ok(())
}

// Req: F3
// Req: F6
// Req: F7
// Req: F9
#[test]
fn the_function_takes_and_reports_what_the_model_does() {
    let mut db = harness::database();
    let mut prng = Prng::new(1);
    for case in 0..QUEUES {
        let queue = fill(&mut db, &mut prng);
        let claim = Claim::prepare(&mut db.client);
        for _ in 0..CLAIMS {
            let demands: Vec<Ask> = STAGES.iter().map(|_| demand(&mut prng, &queue)).collect();
            let last = queue.last().map_or(1, |row| row.id as u64 + 3);
            let touched: Vec<i64> =
                (0..prng.pick(&[0, 0, 1, 7])).map(|_| prng.clone().below(last) as i64).collect();
            let mut transaction = db.client.transaction().expect("a transaction");
            let reply = claim.run(&mut transaction, &STAGES, &demands, &touched, prng.chance(200));
            transaction.rollback().expect("a rollback");
            if let Err(text) = compare(&reply, &queue, &demands, &touched) {
                panic!("queue {case}: {text}\n{queue:?}\n{demands:?}\ntouched {touched:?}");
            }
            for (stage, demand) in demands.iter().enumerate() {
                let taken = reply.rows.iter().filter(|row| row.stage == stage).count();
                assert!(taken <= demand.capacity as usize, "more than the capacity");
            }
        }
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
