//! What one claim costs (requirements W4, F8, and the goals of docs/fairness.md): by depth, by number of senders, and after many
//! messages have passed while another session holds a snapshot. `cargo bench --bench claim`; a PostgreSQL of its own, a few
//! minutes. The queues that a goal compares are claimed in turns, so that what else the machine does meets both alike.
//!
//! Each line is of claims through `Fair` and one prepared statement, as the dispatcher makes them, with a notification before
//! each; claimed rows go through another stage and are deleted, and as many are added, between the claims, outside the time.
//! fsync is off and commits are asynchronous, as the dispatcher's are: a claim's own time counts, not the disk's. Exits with 1 when a goal is missed.

#[path = "claim/bench.rs"]
mod bench;
#[path = "../tests/fair/claim.rs"]
mod claim;
#[allow(dead_code, unused_imports)]
#[path = "../src/dispatch/machine/fair/mod.rs"]
mod fair;
#[path = "../tests/harness/mod.rs"]
mod harness;

use bench::{CAPACITY, Filling, Queue, WARMING, Way, measure};
use harness::{Options, Postgres};
use std::process::ExitCode;

const CLAIMS: usize = 400;
const PASSED: u64 = 150_000;

/// One goal: its figure, what it may be at most, and in which words.
struct Goal {
    text: &'static str,
    figure: f64,
    most: f64,
}

/// What measures some of the goals.
type Part = fn(&Postgres, &mut Vec<Goal>);

fn main() -> ExitCode {
    let settings = [("shared_buffers", "512MB"), ("max_wal_size", "4GB")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let server = Postgres::start(Options { fsync: false, settings });
    let mut goals = Vec::new();
    println!("capacity {CAPACITY}, {CLAIMS} claims a line; microseconds");
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let parts: [(&str, Part); 3] = [("depth", depth), ("senders", senders), ("snapshot", snapshot)];
    for (_, part) in parts.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name)) {
        part(&server, &mut goals);
    }
    println!();
    let mut missed = 0;
    for goal in &goals {
        let met = goal.figure <= goal.most;
        missed += u32::from(!met);
        let word = if met { "met" } else { "MISSED" };
        println!("{:<78} {:>8.2}  at most {:>8.2}  {word}", goal.text, goal.figure, goal.most);
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn goal(goals: &mut Vec<Goal>, text: &'static str, figure: f64, most: f64) {
    goals.push(Goal { text, figure, most });
}

fn depth(server: &Postgres, goals: &mut Vec<Goal>) {
    println!("\nby depth, one sender");
    let queue = |way, rows| Queue::new(server, way, Filling { rows, senders: 1 });
    let queues = [
        queue(Way::Fair, 1_000),
        queue(Way::Fair, 1_000_000),
        queue(Way::OldestFirst, 1_000),
        queue(Way::OldestFirst, 1_000_000),
        queue(Way::Plain, 1_000),
    ];
    let all = measure(queues, WARMING, CLAIMS).map(|(_, figures)| figures);
    let names = [
        "fair, 1,000 rows",
        "fair, 1,000,000 rows",
        "oldest first, 1,000 rows",
        "oldest first, 1,000,000 rows",
    ];
    for (name, figures) in names.iter().chain(&["plain LIMIT claim, 1,000 rows"]).zip(&all) {
        figures.print(name);
    }
    let [shallow, deep, old_shallow, old_deep, plain] = all;
    // How fast the machine is just now decides about the milliseconds, and not about this.
    println!("  fair at 1,000,000 rows to the plain claim: {:.2}", deep.median / plain.median);
    goal(goals, "fair: median at 1,000,000 rows, ms", deep.median / 1_000.0, 1.0);
    goal(goals, "fair: 1,000,000 rows to 1,000", deep.median / shallow.median, 1.2);
    goal(goals, "oldest first: 1,000,000 rows to 1,000", old_deep.median / old_shallow.median, 1.2);
}

fn senders(server: &Postgres, goals: &mut Vec<Goal>) {
    println!("\nby senders, 100,000 rows");
    let queue = |senders| Queue::new(server, Way::Fair, Filling { rows: 100_000, senders });
    let queues = [1, 64, 1_000, 10_000].map(queue);
    let all = measure(queues, WARMING, CLAIMS).map(|(_, figures)| figures);
    for (senders, figures) in ["1", "64", "1,000", "10,000"].iter().zip(&all) {
        figures.print(&format!("{senders} senders"));
    }
    goal(goals, "10,000 senders to 1", all[3].median / all[0].median, 3.0);
}

/// The same queue before and after so many messages of many other senders have passed through, under a held snapshot.
fn snapshot(server: &Postgres, goals: &mut Vec<Goal>) {
    for (name, rows, passing) in [
        ("a backlog of 10 senders, 1,000 others pass", 10_000, 1_000),
        ("a backlog of 10 senders, as many others as messages pass", 10_000, PASSED),
        ("nothing else waits, 1,000 senders pass", 0, 1_000),
    ] {
        println!("\n{name}");
        let fresh = Queue::new(server, Way::Fair, Filling { rows, senders: 10 });
        let mut held = Queue::new(server, Way::Fair, Filling { rows, senders: 10 });
        let mut holder = held.database.connect();
        let mut transaction = holder.transaction().expect("a transaction");
        transaction
            .batch_execute(
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pepsi.workqueue",
            )
            .expect("a snapshot");
        held.pass(PASSED, passing);
        let [(mut fresh, before), (mut held, after)] = measure([fresh, held], WARMING, CLAIMS);
        before.print("nothing has passed");
        after.print("150,000 messages have passed, snapshot held");
        fresh.set_way(Way::Plain);
        held.set_way(Way::Plain);
        let plain = measure([fresh, held], 0, CLAIMS / 8).map(|(_, figures)| figures);
        plain[0].print("plain LIMIT claim, nothing has passed");
        plain[1].print("plain LIMIT claim, snapshot held");
        goal(goals, "snapshot held: median to that before", after.median / before.median, 4.0);
        goal(goals, "snapshot held: mean to that before", after.mean / before.mean, 4.0);
        transaction.rollback().expect("a rollback");
    }
}
