//! How a stage that waits 10 ms a message scales with its workers.

use crate::harness::Postgres;
use crate::report::{Report, Samples, Target};
use crate::world::{STAGE, World};
use std::time::Instant;

const SERVICE_MS: i32 = 10;
/// Messages a worker and round.
const EACH: usize = 100;
const ROUNDS: usize = 5;

/// Messages a second.
fn rates(server: &Postgres, workers: usize) -> Samples {
    let mut world = World::new(server, true);
    world.set(&format!("stage-{STAGE}"), "PARALLELISM", &workers.to_string());
    world.start();
    let mut round = |messages: usize| {
        let done = world.records().len();
        world.pile("a@scaling.example", SERVICE_MS, messages);
        let begin = Instant::now();
        world.notify();
        world.until(done + messages);
        messages as f64 / begin.elapsed().as_secs_f64()
    };
    // All workers are up, and the average is known.
    round(20 * workers);
    let rates = Samples::new((0..ROUNDS).map(|_| round(EACH * workers)).collect());
    world.stop();
    rates
}

pub fn scaling(server: &Postgres, report: &mut Report) {
    let alone = rates(server, 1).median();
    for workers in [2, 4, 8, 16] {
        let rates = rates(server, workers);
        let text = format!("10 ms a message: {workers} workers to {workers} times one");
        let ratio = rates.median() / (alone * workers as f64);
        let spread = format!("{alone:.0} /s alone; {}", rates.spread());
        report.line(&text, ratio, "", Target::AtLeast(0.95), &spread);
    }
}
