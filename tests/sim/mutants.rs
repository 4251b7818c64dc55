//! Mutants of the machine: each changes one line of it, and the simulation must notice.
//!
//! The machine's source and this test are copied, every mutant is built in behind a switch, and the copy is compiled
//! once; each mutant is then a run of that program. A mutant whose line is not in the source any more fails the test.

use super::edits::mutants;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The tests that take long: of one it is set how many seeds it gets here, one is left out, and the others come last.
const RANDOM: &str = "random_worlds";
const SEQUENCES: &str = "sequences::";
const SLOW: &[&str] = &["a_flood_of_senders", "refuses_every_write", "the_fifo_share_is_exact"];
const SEEDS: &str = "150";
const STEPS: &str = "2000";
/// A few seconds are enough, but not on a machine that does other things as well.
const PATIENCE: Duration = Duration::from_secs(120);

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
        for (number, mutant) in mutants().iter().enumerate().filter(|(_, mutant)| mutant.file == name) {
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
    let text = text.replace("#[path = \"sim/edits.rs\"]\nmod edits;\n", "");
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
        ends_well(command.spawn().expect("the copy runs"), number)
    };
    let mut quick = vec!["--skip", RANDOM, "--skip", SEQUENCES];
    SLOW.iter().for_each(|slow| quick.extend(["--skip", *slow]));
    run(&quick) && run(&[RANDOM]) && run(SLOW)
}

/// A mutant that makes a test run for ever is caught too.
fn ends_well(mut copy: Child, number: usize) -> bool {
    let start = Instant::now();
    loop {
        if let Some(status) = copy.try_wait().expect("a child of ours") {
            return status.success();
        }
        if number > 0 && start.elapsed() > PATIENCE {
            copy.kill().and_then(|()| copy.wait()).expect("it can be killed");
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_mutant_is_caught() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutants-{}", std::process::id()));
    let folder = Folder(folder);
    let main = copy(Path::new(env!("CARGO_MANIFEST_DIR")), &folder.0);
    let program = folder.0.join("mutants");
    compile(&main, &program);
    let mutants = mutants();
    let next = AtomicUsize::new(0);
    let survivors = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    // Number 0 is the machine as it is, and must pass.
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number > mutants.len() {
                        break;
                    }
                    if passes(&program, number) != (number == 0) {
                        let what = if number == 0 { "no mutant at all" } else { mutants[number - 1].what };
                        survivors.lock().expect("nobody panics here").push(what);
                    }
                }
            });
        }
    });
    let survivors = survivors.into_inner().expect("nobody panics here");
    assert!(survivors.is_empty(), "not caught: {survivors:#?}");
}
