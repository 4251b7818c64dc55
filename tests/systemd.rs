//! The service file: systemd reads it without a complaint, and what it allows is little.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Ten times the exposure that `systemd-analyze security` may find.
const EXPOSURE: &str = "30";
/// Known to systemd from this version on; before, it says so and goes on.
const NEWER: (u32, [&str; 2]) = (254, ["RestartSteps", "RestartMaxDelaySec"]);

fn unit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/pepsi-dispatch.service")
}

/// None when there is no such program, which is said.
fn analyze(arguments: &[&str], unit: &Path) -> Option<Output> {
    match Command::new("systemd-analyze").args(arguments).arg(unit).output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("SKIPPED: systemd-analyze cannot be run ({error}); scripts/test installs it as root");
            None
        }
    }
}

#[test]
fn what_the_service_may_do_is_little() {
    let threshold = format!("--threshold={EXPOSURE}");
    let Some(output) = analyze(&["security", "--offline=yes", "--no-pager", &threshold], &unit()) else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().find(|line| line.contains("Overall exposure level")).unwrap_or_default();
    assert!(
        output.status.success() && !last.is_empty(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn systemd_reads_the_service() {
    let text = std::fs::read_to_string(unit()).unwrap();
    // It checks that the program is there.
    let installed = "ExecStart=/usr/local/bin/pepsi ";
    assert!(text.contains(installed));
    let here = text.replace(installed, &format!("ExecStart={} ", env!("CARGO_BIN_EXE_pepsi")));
    let folder = std::env::temp_dir().join(format!("pepsi-test-systemd-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let copy = folder.join("pepsi-dispatch.service");
    std::fs::write(&copy, here).unwrap();
    let output = analyze(&["verify", "--man=no", "--recursive-errors=no"], &copy);
    let version = analyze(&["--version"], Path::new("")).map(|output| output.stdout).unwrap_or_default();
    std::fs::remove_dir_all(&folder).unwrap();
    let Some(output) = output else { return };
    let version = String::from_utf8_lossy(&version).into_owned();
    let version: u32 = version.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_expected = |line: &str| version < NEWER.0 && NEWER.1.iter().any(|key| line.contains(key));
    let wrong: Vec<&str> = said.lines().filter(|line| !is_expected(line)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
