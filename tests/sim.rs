//! The dispatcher machine against a simulated world, each run from one seed.
//!
//! `PEPSI_SIM_SEED=N` runs that one seed; `PEPSI_SIM_SEEDS=N` and `PEPSI_SIM_STEPS=N` set how many seeds are run and
//! how many steps the hostile part of each takes. A failure names its seed; `PEPSI_SIM_TRACE=1` prints every step.

#[allow(dead_code)]
#[path = "../src/dispatch/machine/mod.rs"]
mod machine;

#[path = "sim/bench.rs"]
mod bench;
#[path = "sim/books.rs"]
mod books;
#[path = "sim/check.rs"]
mod check;
#[path = "sim/database.rs"]
mod database;
#[path = "sim/edges.rs"]
mod edges;
#[path = "sim/edits.rs"]
mod edits;
#[path = "sim/fair.rs"]
mod fair;
#[path = "sim/life.rs"]
mod life;
#[path = "sim/mutants.rs"]
mod mutants;
#[path = "sim/prng.rs"]
mod prng;
#[path = "sim/process.rs"]
mod process;
#[path = "sim/reload.rs"]
mod reload;
#[path = "sim/reloads.rs"]
mod reloads;
#[path = "sim/runs.rs"]
mod runs;
#[path = "sim/sequences.rs"]
mod sequences;
#[path = "sim/server.rs"]
mod server;
#[path = "sim/signals.rs"]
mod signals;
#[path = "sim/surroundings.rs"]
mod surroundings;
#[path = "sim/sweep.rs"]
mod sweep;
#[path = "sim/trouble.rs"]
mod trouble;
#[path = "sim/withdraw.rs"]
mod withdraw;
#[path = "sim/workers.rs"]
mod workers;
#[path = "sim/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// When one thread fails the others need not go on.
struct StopAll<'a>(&'a AtomicU64);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(u64::MAX / 2, Ordering::Relaxed);
        }
    }
}

/// Enough to meet everything.
const WORLDS: u64 = 1_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

// Req: D2
// Req: D3
// Req: D4
// Req: D7
// Req: D9
// Req: E2
// Req: E3
// Req: L2
// Req: P3
// Req: P8
#[test]
fn random_worlds() {
    let hostile = number("PEPSI_SIM_STEPS", 8_000);
    let one = number("PEPSI_SIM_SEED", 0);
    if one > 0 {
        runs::random(one, hostile);
        return;
    }
    let seeds = number("PEPSI_SIM_SEEDS", WORLDS);
    let next = AtomicU64::new(1);
    let steps = AtomicU64::new(0);
    let seen = Mutex::new(BTreeMap::new());
    let start = std::time::Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let _stop = StopAll(&next);
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds {
                        break;
                    }
                    let world = runs::random(seed, hostile);
                    steps.fetch_add(world.steps, Ordering::Relaxed);
                    let mut seen = seen.lock().expect("no run panicked");
                    for (what, count) in world.seen {
                        *seen.entry(what).or_insert(0) += count;
                    }
                }
            });
        }
    });
    let (steps, time) = (steps.into_inner(), start.elapsed());
    println!("{seeds} seeds, {steps} steps in {:.1} s", time.as_secs_f64());
    let seen = seen.into_inner().expect("no run panicked");
    for (what, count) in &seen {
        println!("{count:>9} {what}");
    }
    let missed: Vec<_> = runs::MET.iter().filter(|what| !seen.contains_key(**what)).collect();
    assert!(seeds < WORLDS || missed.is_empty(), "never met: {missed:?}");
}
