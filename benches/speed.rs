//! What Pepsi costs, measured: `cargo bench --bench speed -- NAME...`, all without a name. Each line is a figure, its target, whether
//! that is met, and the spread over the rounds. Exits with 1 when one is missed. docs/performance.md tells what the figures mean.
//!
//! Real dispatchers and the binary's own stages on a private PostgreSQL with its durable defaults; logs as by default. What a
//! ratio compares takes turns within the run.

#[path = "speed/backlog.rs"]
mod backlog;
#[path = "speed/bloat.rs"]
mod bloat;
#[path = "../tests/fair/claim.rs"]
mod claim;
#[path = "speed/cost.rs"]
mod cost;
#[allow(dead_code, unused_imports)]
#[path = "../src/dispatch/machine/fair/mod.rs"]
mod fair;
#[path = "../tests/harness/mod.rs"]
mod harness;
#[path = "speed/limit.rs"]
mod limit;
#[path = "speed/line.rs"]
mod line;
#[path = "goals/processes.rs"]
#[allow(dead_code)]
mod processes;
#[path = "goals/report.rs"]
#[allow(dead_code)]
mod report;
#[allow(dead_code, unused_imports)]
#[path = "../src/sql/mod.rs"]
mod sql;
#[path = "speed/steady.rs"]
mod steady;

/// What src/sql asks of the rest of the crate: nothing that matters to a URL with a user.
mod sys {
    pub fn uid() -> u32 {
        0
    }
}

mod host {
    pub fn user_name(_uid: u32) -> Option<String> {
        None
    }
}

use harness::{Options, Postgres};
use report::Report;
use std::process::ExitCode;
use std::time::Instant;

type Theme = fn(&Postgres, &mut Report);

const THEMES: [(&str, Theme); 11] = [
    ("metadata", backlog::metadata),
    ("fused", backlog::fused),
    ("full", backlog::full),
    ("shapes", backlog::shapes),
    ("pickup", steady::pickup),
    ("steady", steady::steady),
    ("depth", steady::depth),
    ("memory", cost::memory),
    ("processor", cost::processor),
    ("start", cost::start),
    ("bloat", bloat::bloat),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // cargo adds an option of its own.
    let names: Vec<&String> = arguments.iter().filter(|name| *name != "--bench").collect();
    if let Some(unknown) = names.iter().find(|name| !THEMES.iter().any(|(known, _)| known == **name)) {
        eprintln!("unknown: {unknown}; known are {}", THEMES.map(|(name, _)| name).join(", "));
        return ExitCode::from(64);
    }
    let server = Postgres::start(Options { fsync: true, settings: Vec::new() });
    let mut report = Report::default();
    for (name, theme) in THEMES.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name))
    {
        let begin = Instant::now();
        theme(&server, &mut report);
        println!("  {name}: {:.0} s", begin.elapsed().as_secs_f64());
    }
    if report.is_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
