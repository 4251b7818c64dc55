//! How worker time is shared among senders with a backlog, and what that costs.

use crate::harness::Postgres;
use crate::report::{Report, Samples, Target, jain};
use crate::world::{World, rest, seconds, wall_clock};
use std::collections::BTreeMap;

/// Worker time of each sender within a span, what lies outside cut off.
fn used(world: &mut World, from: u64, until: u64) -> BTreeMap<String, f64> {
    let mut used = BTreeMap::new();
    for record in world.records() {
        let span = record.done.min(until).saturating_sub(record.begun.max(from));
        *used.entry(record.sender.clone()).or_insert(0.0) += seconds(span);
    }
    used
}

/// Messages of 500 ms against messages of 50 ms.
pub fn time(server: &Postgres, report: &mut Report) {
    const FROM_MS: u64 = 3_000;
    const PARTS: u64 = 3;
    const PART_MS: u64 = 5_000;
    let mut world = World::new(server, true);
    world.pile("s@slow.example", 500, 400);
    world.pile("q@quick.example", 50, 4_000);
    world.start();
    world.until(1);
    rest(FROM_MS);
    let begin = wall_clock();
    rest(PARTS * PART_MS);
    // What began before the end is finished, and counts as far as it lies before it.
    rest(600);
    let mut share = |from: u64, parts: u64| {
        let from = begin + from * PART_MS * 1_000;
        let used = used(&mut world, from, from + parts * PART_MS * 1_000);
        let (slow, quick) = (used["s@slow.example"], used["q@quick.example"]);
        100.0 * slow / (slow + quick)
    };
    let whole = share(0, PARTS);
    let parts = Samples::new((0..PARTS).map(|part| share(part, 1)).collect());
    world.stop();
    let spread = format!("in parts of 5 s: {}", parts.spread());
    report.line(
        "500 ms messages against 50 ms: their worker time",
        whole,
        "%",
        Target::Between(45.0, 55.0),
        &spread,
    );
}

fn ten(server: &Postgres, fair: bool, milliseconds: i32, each: usize) -> World {
    let mut world = World::new(server, fair);
    for sender in 0..10 {
        world.pile(&format!("x@equal{sender}.example"), milliseconds, each);
    }
    world.database.run("ANALYZE pepsi.workqueue");
    world
}

/// Ten senders with a backlog each, every backlog in one piece.
pub fn equals(server: &Postgres, report: &mut Report) {
    const SPAN_MS: u64 = 10_000;
    const PARTS: u64 = 4;
    // Both at once, so that what else the machine does meets both alike.
    let mut worlds = [true, false].map(|fair| ten(server, fair, 50, 150));
    worlds.iter_mut().for_each(World::start);
    worlds.iter_mut().for_each(|world| world.until(20));
    let begin = wall_clock();
    rest(SPAN_MS);
    let end = wall_clock();
    rest(60);
    let shares: Vec<f64> = used(&mut worlds[0], begin, end).into_values().collect();
    assert_eq!(shares.len(), 10, "all senders were served");
    report.line("ten backlogged equals, 10 s: Jain's index", jain(&shares), "", Target::AtLeast(0.99), "");
    let part = (end - begin) / PARTS;
    let mut done = |index: usize, part_number: u64| {
        let from = begin + part_number * part;
        worlds[index].records().iter().filter(|record| (from..from + part).contains(&record.done)).count()
            as f64
    };
    let rates: Vec<[f64; 2]> = (0..PARTS).map(|part| [done(0, part), done(1, part)]).collect();
    let [fair, plain] = [0, 1].map(|index| rates.iter().map(|rate| rate[index]).sum::<f64>());
    let parts = Samples::new(rates.iter().map(|[fair, plain]| 100.0 * fair / plain).collect());
    worlds.iter_mut().for_each(World::stop);
    let spread = format!("in parts of 2.5 s: {}", parts.spread());
    let text = "the same, 50 ms messages: throughput to FAIR_SCHEDULING=no";
    report.line(text, 100.0 * fair / plain, "%", Target::AtLeast(97.0), &spread);
    full_speed(server, report);
}

/// The same with messages that take no time: what is left is the work of dispatcher, workers and database.
fn full_speed(server: &Postgres, report: &mut Report) {
    const ROUNDS: usize = 4;
    const ROUND_MS: u64 = 1_500;
    let mut worlds = [true, false].map(|fair| ten(server, fair, 0, 5_000));
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (world, rates) in worlds.iter_mut().zip(&mut rates) {
            world.start();
            let before = world.records().len();
            world.until(before + 200);
            let (from, first) = (wall_clock(), world.records().len());
            rest(ROUND_MS);
            let done = world.records().len() - first;
            rates.push(done as f64 / seconds(wall_clock() - from));
            world.stop();
        }
    }
    let [fair, plain] = rates.map(Samples::new);
    let ratio = 100.0 * fair.median() / plain.median();
    let spread = format!("a second: fair {}; no {}", fair.spread(), plain.spread());
    report.line("the same, messages that take no time", ratio, "%", Target::None, &spread);
}
