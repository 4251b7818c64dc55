//! Mutants of the machine: each changes one line of it, and the simulation must notice.
//!
//! The machine's source and this test are copied, every mutant is built in behind a switch, and the copy is compiled
//! once; each mutant is then a run of that program. A mutant whose line is not in the source any more fails the test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Mutant {
    what: &'static str,
    file: &'static str,
    /// An expression that is in the file once.
    from: &'static str,
    to: &'static str,
}

/// The tests that take long, and how many seeds the one gets here; the other is left out.
const RANDOM: &str = "random_worlds";
const SEQUENCES: &str = "sequences::";
const SEEDS: &str = "150";
const STEPS: &str = "2000";

const fn mutant(what: &'static str, file: &'static str, from: &'static str, to: &'static str) -> Mutant {
    Mutant { what, file, from, to }
}

const MUTANTS: &[Mutant] = &[
    mutant(
        "a worker goes on before its rows are known to be back",
        "withdraw.rs",
        "Some(Job::Requeue { rows: claims })",
        "{ self.actions.push(Action::Continue { worker: id }); Some(Job::Requeue { rows: claims }) }",
    ),
    mutant(
        "rows are withdrawn though their head was answered",
        "withdraw.rs",
        "worker.sent.front().map(|row| row.claim) == Some(*head)",
        "worker.sent.len() > 1 && head.id > 0",
    ),
    mutant(
        "rows are withdrawn before the worker has stopped",
        "withdraw.rs",
        "Phase::Stopping | Phase::Writing(_) | Phase::Lost { .. } => None",
        "Phase::Stopping => Some((Kind::Withdraw, self.now)), Phase::Writing(_) | Phase::Lost { .. } => None",
    ),
    mutant("answers to withdrawn ids are a breach", "verdict.rs", "worker.ghosts.is_empty()", "true"),
    mutant(
        "an answer to a withdrawn id counts",
        "withdraw.rs",
        "worker.sent.drain(1..).collect()",
        "worker.sent.iter().skip(1).cloned().collect()",
    ),
    mutant(
        "withdrawn rows that were not written are dropped",
        "withdraw.rs",
        "worker.sent.extend(back)",
        "drop(back)",
    ),
    mutant(
        "what was withdrawn is not refunded",
        "withdraw.rs",
        "self.claims.fair.settle(self.now, row.claim.key(), fair::End::Unrun)",
        "()",
    ),
    mutant("what was withdrawn is not looked up", "withdraw.rs", "self.claims.touch(row.claim.id)", "()"),
    mutant(
        "a worker that compares no claims is withdrawn from",
        "withdraw.rs",
        "worker.claims && worker.sent.len() > 1",
        "worker.sent.len() > 1",
    ),
    mutant(
        "a worker is left stopped at the end",
        "withdraw.rs",
        "&& self.stop.is_none() && is_up",
        "&& is_up",
    ),
    mutant(
        "a worker that does not stop is waited for",
        "withdraw.rs",
        "!goes_on || self.now >= since.saturating_add(HALT_LIMIT)",
        "!goes_on",
    ),
    mutant(
        "after a lost reply the worker goes on at once",
        "withdraw.rs",
        "self.now.saturating_add(LOST_LIMIT)",
        "self.now",
    ),
    mutant(
        "rows are put behind a stuck head",
        "worker.rs",
        "self.stuck || !self.may_be_sent()",
        "!self.may_be_sent()",
    ),
    mutant("a sibling is struck", "verdict.rs", "sent.pop_front()", "sent.pop_back()"),
    mutant("a dead worker's rows are not looked up", "verdict.rs", "self.claims.touch(row.claim.id)", "()"),
    mutant("an answered row is not looked up", "verdict.rs", "self.claims.touch(id)", "self.claims.want()"),
    mutant("a crash costs its sender nothing", "verdict.rs", "End::Burned(used)", "End::Unrun"),
    mutant("the average does not learn", "verdict.rs", "self.claims.fair.measured(stage, spent)", "()"),
    mutant(
        "a message that did not run is not refunded",
        "mod.rs",
        "self.claims.fair.settle(self.now, row.key(), fair::End::Unrun)",
        "()",
    ),
    mutant(
        "an answer is charged twice",
        "verdict.rs",
        "self.claims.fair.settle(self.now, row.claim.key(), End::Ran(spent))",
        "()",
    ),
    mutant("a cooldown is forgotten", "verdict.rs", "self.stages[stage].cool(self.now)", "()"),
    mutant("a database in trouble gets no rest", "verdict.rs", "self.stages[stage].hold(self.now)", "()"),
    mutant(
        "a failed message is not marked",
        "verdict.rs",
        "self.writes.push(row.claim, What::Fail { error })",
        "drop(error)",
    ),
    mutant("suspects are not handed out alone", "verdict.rs", "self.strikes.add(row.claim.id)", "()"),
    mutant("a breach leads to no reconcile", "verdict.rs", "self.upkeep.suspect(self.now)", "()"),
    mutant("strikes are not counted", "verdict.rs", "self.stats.strike(&name, blame)", "()"),
    mutant("surplus answers are overlooked", "verdict.rs", "worker.sent.is_empty()", "false"),
    mutant("a hang is never ended", "worker.rs", "(Dying, Deed::Kill(Why::Hung))", "(state, Deed::Nothing)"),
    mutant(
        "the clock of a head starts with the pipeline",
        "worker.rs",
        "self.turned = now;\n        self.answered = true",
        "self.answered = true",
    ),
    mutant(
        "the next head is struck for the one that hung",
        "worker.rs",
        "head.is_some() && head == self.overdue",
        "head.is_some()",
    ),
    mutant(
        "a row with strikes is sent behind another",
        "worker.rs",
        "(row.alone && !self.sent.is_empty())",
        "false",
    ),
    mutant(
        "others are sent behind a row with strikes",
        "worker.rs",
        "self.sent.iter().chain(&self.unsent).any(|row| row.alone)",
        "false",
    ),
    mutant(
        "one id too many for a worker",
        "worker.rs",
        "spec.queue_limit.saturating_sub(self.holds())",
        "(spec.queue_limit + 1).saturating_sub(self.holds())",
    ),
    mutant("exit 74 is a crash", "worker.rs", "Verdict::Lost", "crash"),
    mutant("exit 78 is always a crash", "worker.rs", "!self.answered", "false"),
    mutant(
        "one worker too many",
        "pool.rs",
        "self.cool_until.is_none() && self.live() < cap",
        "self.cool_until.is_none() && self.live() <= cap",
    ),
    mutant(
        "a retiring worker does not count",
        "pool.rs",
        "self.workers.len() as u32",
        "self.workers.iter().filter(|worker| worker.is_open()).count() as u32",
    ),
    mutant("long work is packed and short work spread", "pool.rs", "average <= LONG", "average > LONG"),
    mutant("cooldowns do not grow", "pool.rs", "(self.cooldown * 2).min(LONGEST_COOLDOWN)", "self.cooldown"),
    mutant("worn workers stay", "pool.rs", "worker.is_worn(&self.spec)", "false"),
    mutant(
        "the end of a hold is no deadline",
        "pool.rs",
        "workers.chain(self.cool_until).chain(self.hold_until).min()",
        "workers.chain(self.cool_until).min()",
    ),
    mutant("time limits are not judged", "turn.rs", "self.judge_workers()", "()"),
    mutant(
        "the end of a cooldown is no wake",
        "turn.rs",
        "self.stages[stage].expire(self.now)",
        "{ self.stages[stage].expire(self.now); false }",
    ),
    mutant("nobody is killed at the end", "stop.rs", "self.now >= stop.since.saturating_add(GRACE)", "false"),
    mutant("what was not sent is dropped at the end", "stop.rs", "self.requeue(row)", "drop(row)"),
    mutant(
        "the last statistics are not written",
        "stop.rs",
        "(stop.flushed || !self.stats.is_dirty())",
        "true",
    ),
    mutant("a reconnect reconciles nothing", "jobs.rs", "self.upkeep.connected(self.now)", "()"),
    mutant("a reconcile frees what is held", "jobs.rs", "self.held()", "Vec::new()"),
    mutant(
        "strikes do not make a row be alone",
        "jobs.rs",
        "self.strikes.take(claim.id) || strikes > 0",
        "self.strikes.take(claim.id)",
    ),
    mutant("a row that was written back is not looked up", "jobs.rs", "self.claims.touch(row.id)", "()"),
    mutant(
        "a lost flush is counted twice",
        "jobs.rs",
        "self.stats.lost()",
        "{ self.stats.refused(self.now); true }",
    ),
    mutant("a held lock is awaited for ever", "jobs.rs", "self.now >= until", "false"),
    mutant("the heartbeat looks no further down", "claims.rs", "self.fair.beat()", "()"),
    mutant("a notification looks no further down", "claims.rs", "self.fair.expose(now)", "()"),
    mutant(
        "a claim that failed forgets what it was told",
        "fair/mod.rs",
        "self.watch.unheard()",
        "self.watch.heard()",
    ),
    mutant(
        "the floor passes transactions that have not ended",
        "fair/reach.rs",
        "at.saturating_add(LAG) <= now",
        "at <= now",
    ),
    mutant("the floor passes what was seen", "fair/mod.rs", "stage.reach.lower(*id)", "()"),
    mutant(
        "the floor passes what was not taken",
        "fair/stage.rs",
        "outcome.floor = Some(*id)",
        "outcome.floor = Some(*id + 1)",
    ),
    mutant("a claim around locked rows is believed", "fair/mod.rs", "!self.skipping", "true"),
    mutant("locked rows stop every stage", "claims.rs", "self.skip_locked = true", "()"),
    mutant("a lost write is dropped", "writes.rs", "self.queue.push_front(write)", "drop(write)"),
    mutant("a refused write is dropped", "writes.rs", "self.queue.push_back(write)", "drop(write)"),
    mutant("unresolved writes are not bounded", "writes.rs", "self.len() >= BOUND", "false"),
    mutant(
        "rows that a worker left running stay so",
        "upkeep.rs",
        "self.reconcile_at.get_or_insert(tick);",
        "",
    ),
    mutant("a fused stage's time is charged twice", "stats.rs", "spent.saturating_sub(elsewhere)", "spent"),
    mutant("a refused flush is dropped", "stats.rs", "self.executed += deltas.executed", "()"),
    mutant("pressure cuts nothing", "pressure.rs", "(self.cap(stage) / 2).max(1)", "self.cap(stage)"),
    mutant("a cut never ends", "pressure.rs", "now >= cut.until", "false"),
    mutant("workers outlive a reload", "reload.rs", "self.worker(worker, Input::Retire)", "drop(worker)"),
    mutant("an edited stage keeps its old values", "reload.rs", "stage.renewed(spec)", "stage"),
    mutant(
        "a mended stage waits for its cooldown",
        "pool.rs",
        "Stage { spec, removed: false, cool_until: None, cooldown: COOLDOWN, hold_until, ..self }",
        "Stage { spec, removed: false, hold_until, ..self }",
    ),
    mutant("rows wait at a removed stage", "pool.rs", "return self.withdraw()", "return Vec::new()"),
    mutant(
        "a removed stage is claimed for",
        "pool.rs",
        "self.removed || !self.waiting.is_empty()",
        "!self.waiting.is_empty()",
    ),
    mutant(
        "a removed stage stays in the table for ever",
        "pool.rs",
        "self.removed && self.workers.is_empty()",
        "false",
    ),
    mutant(
        "a cut goes over to another stage",
        "pressure.rs",
        "was.and_then(|was| old[was].clone())",
        "was.and_then(|was| old.get(was + 1)?.clone())",
    ),
    mutant("a new connection reads nothing again", "jobs.rs", "self.reload.want(self.now, false)", "()"),
    mutant(
        "what cannot be read is not tried again",
        "reload.rs",
        "self.reread_at = Some(now.saturating_add(self.backoff.next(chance)))",
        "()",
    ),
    mutant("the telemetry switch puts a rereading off", "reload.rs", "self.reread_at.is_some()", "false"),
    mutant("a new connection replaces all workers", "reload.rs", "changes.is_none() && !always", "false"),
    mutant("what does not parse is overlooked", "reload.rs", "self.begin(code, true)", "drop(code)"),
    mutant("a fourth strike", "strike.rs", "strikes >= LAST_STRIKE", "strikes > LAST_STRIKE"),
    mutant(
        "the second pause is as short as the first",
        "strike.rs",
        "PAUSE * Micros::from(strikes)",
        "PAUSE",
    ),
];

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All sources in the folder and below it.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("a folder that can be read").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found
}

/// Writes the copy with all mutants in it.
fn copy(root: &Path, folder: &Path) -> PathBuf {
    let machine = folder.join("machine");
    let sim = folder.join("sim");
    for part in [&machine.join("fair"), &sim] {
        std::fs::create_dir_all(part).expect("a folder for the copy");
    }
    let original = root.join("src/dispatch/machine");
    for path in sources(&original) {
        let name = path.strip_prefix(&original).expect("below it").to_str().expect("a plain name");
        let mut text = read(&path);
        for (number, mutant) in MUTANTS.iter().enumerate().filter(|(_, mutant)| mutant.file == name) {
            assert_eq!(text.matches(mutant.from).count(), 1, "{}: `{}`", mutant.what, mutant.from);
            let (number, from, to) = (number + 1, mutant.from, mutant.to);
            let switch = format!("(if crate::mutant() == {number} {{ {to} }} else {{ {from} }})");
            text = text.replacen(from, &switch, 1);
        }
        std::fs::write(machine.join(name), text).expect("the copy is written");
    }
    for path in sources(&root.join("tests/sim")) {
        let name = path.file_name().expect("a file");
        std::fs::copy(&path, sim.join(name)).expect("the copy is written");
    }
    let text = read(&root.join("tests/sim.rs"));
    let text = text.replace("../src/dispatch/machine/mod.rs", "machine/mod.rs");
    let text = text.replace("#[path = \"sim/mutants.rs\"]\nmod mutants;\n", SWITCH);
    assert!(text.contains(SWITCH) && text.contains("\"machine/mod.rs\""));
    let main = folder.join("sim.rs");
    std::fs::write(&main, text).expect("the copy is written");
    main
}

/// Which mutant is alive.
const SWITCH: &str = r#"
pub fn mutant() -> usize {
    static NUMBER: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *NUMBER.get_or_init(|| number("PEPSI_MUTANT", 0) as usize)
}
"#;

fn compile(main: &Path, program: &Path) {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--edition=2024", "--test", "-Awarnings", "-Copt-level=1", "-Cdebug-assertions=on"]);
    let output = command.arg("-o").arg(program).arg(main).output().expect("rustc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Whether all tests of the copy pass with that mutant alive: the quick ones first.
fn passes(program: &Path, number: usize) -> bool {
    let run = |selection: &[&str]| {
        let mut command = Command::new(program);
        command.args(selection).env("PEPSI_MUTANT", number.to_string()).env("PEPSI_SIM_SEEDS", SEEDS);
        command.env("PEPSI_SIM_STEPS", STEPS);
        for other in ["PEPSI_SIM_SEED", "PEPSI_SIM_TRACE", "RUST_BACKTRACE"] {
            command.env_remove(other);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().expect("the copy runs").success()
    };
    run(&["--skip", RANDOM, "--skip", SEQUENCES]) && run(&[RANDOM])
}

#[test]
fn every_mutant_is_caught() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutants-{}", std::process::id()));
    let folder = Folder(folder);
    let main = copy(Path::new(env!("CARGO_MANIFEST_DIR")), &folder.0);
    let program = folder.0.join("mutants");
    compile(&main, &program);
    let next = AtomicUsize::new(0);
    let survivors = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    // Number 0 is the machine as it is, and must pass.
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number > MUTANTS.len() {
                        break;
                    }
                    if passes(&program, number) != (number == 0) {
                        let what = if number == 0 { "no mutant at all" } else { MUTANTS[number - 1].what };
                        survivors.lock().expect("nobody panics here").push(what);
                    }
                }
            });
        }
    });
    let survivors = survivors.into_inner().expect("nobody panics here");
    assert!(survivors.is_empty(), "not caught: {survivors:#?}");
}
