//! What the dispatcher does while nothing happens, and how fast it wakes.

use crate::harness::{PATIENCE, Postgres, wait_until};
use crate::processes::{children, processor_time};
use crate::report::{Report, Samples, Target};
use crate::world::{World, rest, seconds, wall_clock};

/// The head of the statement that a heartbeat makes.
const CLAIM: &str = "-- The claim of all stages at once";

pub fn idle(server: &Postgres, report: &mut Report) {
    const BEAT: u64 = 10;
    const SPAN: u64 = 31;
    let mut world = World::new(server, true);
    world.set("pepsi-dispatch", "POLL_INTERVAL", &format!("{BEAT} s"));
    world.set("pepsi-dispatch", "WORKER_IDLE_TIMEOUT", "1 s");
    // What follows once after work (statistics, unused bodies, a reconcile) is over soon.
    world.set("pepsi-dispatch", "STATS_INTERVAL", "1 s");
    server.admin(&format!("ALTER DATABASE {} SET log_statement = 'all'", world.database.name));
    world.start();
    let sent = world.send("a@idle.example", 0);
    world.wait_of(sent);
    let pid = world.process().id();
    wait_until("the worker has gone", PATIENCE, || children(pid).is_empty());
    rest(3_000);
    let mark = format!("pepsi-dispatch|{}|", world.database.name);
    let log = || {
        let log = server.log();
        let lines = log.lines().filter(|line| line.starts_with(&mark) && line.contains("LOG:"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (before, time, begin) = (log().len(), processor_time(pid), wall_clock());
    rest(SPAN * 1_000);
    let time = 100.0 * (processor_time(pid) - time) / seconds(wall_clock() - begin);
    let statements = log().split_off(before);
    world.stop();
    assert!(before > 0, "the log tells of the dispatcher's statements");
    let beats = statements.iter().filter(|line| line.contains(CLAIM)).count();
    let most = (SPAN / BEAT + 1) as usize;
    let others = statements.len() - beats.min(most);
    let spread = format!("{SPAN} s, {beats} heartbeats of one claim each");
    report.line("idle: statements between heartbeats", others as f64, "", Target::AtMost(0.0), &spread);
    let spread = format!("{SPAN} s, a heartbeat each {BEAT} s");
    report.line("idle: the dispatcher's processor time", time, "%", Target::AtMost(0.05), &spread);
}

/// From NOTIFY to the worker reading its id. The row is there before, so that only the wake is timed.
pub fn wake(server: &Postgres, report: &mut Report) {
    const WAKES: usize = 1_000;
    let mut world = World::new(server, true);
    world.start();
    let mut waits = Vec::new();
    for number in 0..WAKES + 50 {
        let sent = world.send(&format!("a@wake{}.example", number % 7), 0);
        let wait = 1_000.0 * world.wait_of(sent);
        if number >= 50 {
            waits.push(wait);
        }
        rest(3 + number as u64 % 5);
    }
    world.stop();
    let waits = Samples::new(waits);
    let spread = format!("{}, p99.9 {:.2}", waits.spread(), waits.permille(999));
    report.line(
        "from NOTIFY to a warm worker reading its id: p99",
        waits.percentile(99),
        "ms",
        Target::AtMost(3.0),
        &spread,
    );
}
