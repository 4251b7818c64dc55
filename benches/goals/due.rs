//! How long fresh mail waits while 20,000 messages come back that were paused until the same second, all of one sender, which is
//! also that of the fresh ones: the paused ones are older. A wait ends when the worker reads the id.

use crate::harness::Postgres;
use crate::report::{Report, Samples, Target};
use crate::world::{STAGE, World, rest, seconds, wall_clock};

const DUE: usize = 20_000;
/// Half of what four workers can do.
const SERVICE_MS: i32 = 50;
const GAP_MS: u64 = 25;
/// So many fresh messages before they are due, and after.
const FRESH: u64 = 400;

pub fn due(server: &Postgres, report: &mut Report) {
    for fair in [true, false] {
        let mut world = World::new(server, fair);
        world.pile("s@due.example", SERVICE_MS, DUE);
        let pause = "UPDATE pepsi.workqueue SET status = 'paused', timeout = now() + interval '1 h' + random() * interval '1 s'";
        world.database.run(pause);
        world.database.run("VACUUM ANALYZE pepsi.workqueue");
        world.start();
        let mode = if fair { "fair" } else { "oldest first" };
        let normal = fresh(&mut world);
        let done = world.records().len();
        world
            .database
            .run("UPDATE pepsi.workqueue SET timeout = timeout - interval '1 h' WHERE status = 'paused'");
        // As after a restart: the first claim hears of them.
        world.stop();
        world.start();
        let with_due = fresh(&mut world);
        let text = format!("{mode}: fresh mail's p99 wait, nothing due");
        report.line(&text, normal.percentile(99) * 1e3, "ms", Target::None, &normal.spread());
        let text = format!("{mode}: its p99 wait, 20,000 due at once, to that");
        let ratio = with_due.percentile(99) / normal.percentile(99);
        report.line(&text, ratio, "x", Target::AtMost(2.0), &with_due.spread());
        let swept = world.records().len() - done - FRESH as usize;
        let spent = FRESH as f64 * GAP_MS as f64 / 1e3;
        report.line(
            &format!("{mode}: of the due ones done meanwhile"),
            swept as f64 / spent,
            "/s",
            Target::None,
            "",
        );
        // With all workers for themselves.
        rest(11_000);
        let (before, begin) = (world.records().len(), wall_clock());
        rest(10_000);
        let rate = (world.records().len() - before) as f64 / seconds(wall_clock() - begin);
        let most = 4.0 / (f64::from(SERVICE_MS) / 1e3);
        let text = format!("{mode}: of the due ones alone, of what the workers can do");
        report.line(&text, rate / most, "x", Target::AtLeast(0.85), "");
        world.stop();
        world.database.run(&format!("DELETE FROM pepsi.workqueue WHERE stage = '{STAGE}'"));
    }
}

/// Waits of fresh messages, which come at a steady rate.
fn fresh(world: &mut World) -> Samples {
    for _ in 0..4 {
        world.send("s@due.example", SERVICE_MS);
    }
    rest(500);
    let begin = wall_clock();
    let sent: Vec<(i64, u64)> = (0..FRESH)
        .map(|number| {
            let at = begin + number * GAP_MS * 1_000;
            std::thread::sleep(std::time::Duration::from_micros(at.saturating_sub(wall_clock())));
            world.send("s@due.example", SERVICE_MS)
        })
        .collect();
    Samples::new(sent.into_iter().map(|sent| world.wait_of(sent)).collect())
}
