//! A worker that panics, as a process of its own.

use super::*;
use std::io::Read;
use std::process::{Command, Stdio};

const PANIC_CHILD: &str = "PEPSI_TEST_PANIC_CHILD";

/// Not a test of its own: the process that `a_panic_is_blamed_on_its_message` starts, with a worker's real ends.
#[test]
fn panic_child() {
    if std::env::var_os(PANIC_CHILD).is_none() {
        return;
    }
    let world = world(vec![row(1, "x"), row(2, "panic"), row(3, "x")]);
    let load = if std::env::var_os(PANIC_CHILD).is_some_and(|how| how == "batch") {
        Load::Metadata
    } else {
        Load::Full
    };
    let code = serve_loading(&world, load, b"1 3\n2 3\n3 3\n", &mut std::io::stdout());
    std::process::exit(code.into());
}

// Req: S6, B2
#[test]
fn a_panic_is_blamed_on_its_message() {
    for how in ["alone", "batch"] {
        panics(how);
    }
}

fn panics(how: &str) {
    let name = "worker::runtime::tests::panics::panic_child";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(PANIC_CHILD, how)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(70));
    let answers: Vec<&str> =
        output.lines().skip_while(|line| !line.ends_with("ready claims")).skip(1).collect();
    assert_eq!(answers, ["0"], "{output}");
    assert!(log.contains("the stage was told to") && log.contains("runtime_tests.rs"), "{log}");
    assert!(log.contains("[relay] the stage panicked id=2"), "{log}");
}
