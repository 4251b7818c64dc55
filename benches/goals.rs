//! What Pepsi promises of the line as a whole, measured: `cargo bench --bench goals -- NAME...`, all without a name. Each line is
//! a figure, its target, whether that is met, and the spread. Exits with 1 when one is missed.
//!
//! Real dispatchers on a private PostgreSQL with fsync. The worker of the stages is this program again (`worker.rs`): a message
//! says how long it takes, and its worker sleeps that long, so that the load of the machine matters little.

#[path = "goals/due.rs"]
mod due;
#[path = "goals/endurance.rs"]
mod endurance;
#[path = "../tests/harness/mod.rs"]
mod harness;
#[path = "goals/processes.rs"]
mod processes;
#[path = "goals/quiet.rs"]
mod quiet;
#[path = "goals/report.rs"]
mod report;
#[path = "goals/scaling.rs"]
mod scaling;
#[path = "goals/shares.rs"]
mod shares;
#[path = "goals/waits.rs"]
mod waits;
#[path = "goals/worker.rs"]
mod worker;
#[path = "goals/world.rs"]
mod world;

use harness::{Options, Postgres};
use report::Report;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

type Theme = fn(&Postgres, &mut Report);

const THEMES: [(&str, Theme); 10] = [
    ("light", waits::light),
    ("newcomer", waits::newcomer),
    ("flood", waits::flood),
    ("time", shares::time),
    ("equals", shares::equals),
    ("scaling", scaling::scaling),
    ("due", due::due),
    ("idle", quiet::idle),
    ("wake", quiet::wake),
    ("endurance", endurance::endurance),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [option, config, role] = &arguments[..]
        && option == "-c"
        && role == "worker"
    {
        return worker::run(Path::new(config));
    }
    // cargo adds an option of its own.
    let names: Vec<&String> = arguments.iter().filter(|name| *name != "--bench").collect();
    if let Some(unknown) = names.iter().find(|name| !THEMES.iter().any(|(known, _)| known == **name)) {
        eprintln!("unknown: {unknown}; known are {}", THEMES.map(|(name, _)| name).join(", "));
        return ExitCode::from(64);
    }
    let settings = [("max_wal_size", "4GB"), ("log_line_prefix", "'%a|%d|'")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let server = Postgres::start(Options { fsync: true, settings });
    let mut report = Report::default();
    for (name, theme) in THEMES.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name))
    {
        let begin = Instant::now();
        theme(&server, &mut report);
        println!("  {name}: {:.0} s", begin.elapsed().as_secs_f64());
    }
    if report.is_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
