//! Every program from outside, without a database: how it is found, its options, and what bad input gets.
//!
//! Bad input gets one line on standard error that names the thing, the code of sysexits.h, and never a panic (CLI5).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PEPSI: &str = env!("CARGO_BIN_EXE_pepsi");

struct Outcome {
    code: i32,
    out: String,
    err: String,
}

/// Runs the binary with nothing in its environment but PATH and `pairs`; `None` as a code is a signal, never wanted.
fn run_with(pairs: &[(&str, &str)], args: &[&dyn AsRef<OsStr>]) -> Outcome {
    let mut command = Command::new(PEPSI);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
    command.envs(pairs.iter().copied()).args(args.iter().map(|arg| arg.as_ref()));
    finish(&mut command)
}

fn run(args: &[&str]) -> Outcome {
    run_with(&[], &args.iter().map(|arg| arg as &dyn AsRef<OsStr>).collect::<Vec<_>>())
}

fn finish(command: &mut Command) -> Outcome {
    let output = command.output().expect("the binary runs");
    Outcome {
        code: output.status.code().expect("no signal"),
        out: String::from_utf8(output.stdout).expect("UTF-8 on standard output"),
        err: String::from_utf8(output.stderr).expect("UTF-8 on standard error"),
    }
}

/// It ended with `code` and one line that holds each of `parts`.
#[track_caller]
fn refused(outcome: &Outcome, code: i32, parts: &[&str]) {
    assert_eq!(outcome.code, code, "{}", outcome.err);
    assert_eq!(outcome.err.lines().count(), 1, "not one line: {}", outcome.err);
    assert!(outcome.err.starts_with("error pepsi"), "{}", outcome.err);
    assert!(!outcome.err.contains("internal error"), "{}", outcome.err);
    for part in parts {
        assert!(outcome.err.contains(part), "no {part:?} in: {}", outcome.err);
    }
    assert_eq!(outcome.out, "");
}

fn programs() -> Vec<String> {
    run(&["--list"]).out.lines().map(str::to_owned).collect()
}

/// The subcommand that each program has at the least; pepsi-sendmail has none.
fn subcommand(program: &str) -> Option<&'static str> {
    match program {
        "pepsi-dispatch" => Some("serve"),
        "pepsi-setup" => Some("status"),
        "pepsi-queue" | "pepsi-settings" | "pepsi-whitelist" => Some("list"),
        "pepsi-sendmail" => None,
        stage if stage.starts_with("pepsi-stage-") => Some("worker"),
        other => panic!("say here what {other} is called with"),
    }
}

/// An empty folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pepsi-cli-{}-{name}", std::process::id()));
        fs::create_dir(&path).expect("a new folder");
        Folder(path)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a written file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

// Req: CLI1
#[test]
fn the_program_is_chosen_by_the_name_it_is_called_by() {
    let folder = Folder::new("links");
    let install = || run_with(&[], &[&"install-links", &folder.0]);
    assert_eq!((install().code, install().code), (0, 0), "a second time changes nothing");
    let mut names: Vec<String> = fs::read_dir(&folder.0)
        .expect("read")
        .map(|e| e.expect("entry").file_name().into_string().expect("name"))
        .collect();
    names.sort();
    let listed = programs();
    let mut expected: Vec<String> = listed.iter().cloned().chain(["pepsi".to_owned()]).collect();
    expected.sort();
    assert_eq!(names, expected);
    for name in &listed {
        let version = finish(Command::new(folder.0.join(name)).arg("--version"));
        assert_eq!((version.code, version.err.as_str()), (0, ""));
        assert!(version.out.starts_with(&format!("{name} (pepsi) ")), "{}", version.out);
        assert_eq!(run(&[name, "--version"]).out, version.out, "`pepsi {name}` is the same program");
    }
    let alias = finish(Command::new(PEPSI).arg0("/usr/sbin/sendmail").arg("--version"));
    assert!(alias.out.starts_with("pepsi-sendmail "), "{}", alias.out);
}

#[test]
fn links_replace_links_and_nothing_else() {
    let folder = Folder::new("no-links");
    std::os::unix::fs::symlink("/nonexistent", folder.0.join("pepsi-dispatch")).expect("a link");
    let file = folder.file("pepsi-setup", b"mine");
    refused(&run_with(&[], &[&"install-links", &folder.0]), 73, &[file.to_str().expect("name"), "no link"]);
    assert_eq!(fs::read(&file).expect("still there"), b"mine");
    assert_eq!(fs::read_link(folder.0.join("pepsi-dispatch")).expect("a link"), Path::new(PEPSI));
    refused(&run(&["install-links", "/nonexistent/folder"]), 73, &["/nonexistent/folder"]);
    refused(&run(&["install-links"]), 64, &["folder"]);
    refused(&run(&["install-links", "a", "b"]), 64, &["'b'"]);
}

// Req: CLI1, CLI5
#[test]
fn a_wrong_program_gets_a_line_that_helps() {
    refused(&run(&[]), 64, &["pepsi --help"]);
    refused(&run(&["pepsi-nothing"]), 64, &["'pepsi-nothing'", "pepsi --list"]);
    refused(&run(&["queue", "list"]), 64, &["'queue'", "did you mean pepsi-queue?"]);
    refused(&run(&["--frobnicate"]), 64, &["'--frobnicate'"]);
    refused(&run(&["-c", "x", "pepsi-queue"]), 64, &["'-c'", "before a program's name"]);
    refused(&run(&["--list", "x"]), 64, &["'x'"]);
    refused(&run_with(&[], &[&OsStr::from_bytes(b"\xff\n")]), 64, &["there is no program"]);
    let help = run(&["--help"]);
    assert_eq!((help.code, help.err.as_str()), (0, ""));
    for program in programs() {
        assert!(help.out.contains(&program), "{program}: {}", help.out);
    }
}

// Req: CLI2
#[test]
fn global_options_go_before_the_subcommand() {
    for program in programs() {
        let program = program.as_str();
        let (help, version) = (run(&[program, "--help"]), run(&[program, "--version"]));
        assert_eq!((help.code, version.code), (0, 0));
        assert_eq!((run(&[program, "-h"]).out, run(&[program, "-V"]).out), (help.out.clone(), version.out));
        assert!(help.out.starts_with(&format!("{program}: ")), "{}", help.out);
        let Some(word) = subcommand(program) else { continue };
        assert!(help.out.contains(word) && help.out.contains("--config FILE"), "{}", help.out);
        assert_eq!(run(&[program, word, "--help"]).out, help.out);
        for late in [
            "-c",
            "--config",
            "--config=x",
            "-cx",
            "-L",
            "--log",
            "--log=debug",
            "-v",
            "--verbose",
            "-V",
            "--version",
        ] {
            let name = if late == "-cx" { "-c" } else { late.split('=').next().expect("a name") };
            let part = format!("'{name}' is a global option and goes before the subcommand '{word}'");
            refused(&run(&[program, word, late]), 64, &[&part]);
        }
    }
}

// Req: CLI2, CLI5
#[test]
fn a_wrong_command_line_is_a_usage_error() {
    for program in programs() {
        let program = program.as_str();
        refused(&run(&[program, "-Z"]), 64, &["-Z"]);
        refused(&run(&[program, "--frobnicate"]), 64, &["--frobnicate"]);
        let Some(word) = subcommand(program) else { continue };
        refused(&run(&[program]), 64, &["no subcommand", program, "--help"]);
        refused(&run(&[program, "-c"]), 64, &["-c"]);
        refused(&run(&[program, "-L", "loud", word]), 64, &["'loud'", "warning"]);
        refused(&run(&[program, "--log="]), 64, &["error, warning, info or debug"]);
        refused(&run(&[program, "frobnicate"]), 64, &[program]);
        refused(&run(&[program, word, "superfluous"]), 64, &[program]);
        refused(&run_with(&[], &[&program, &OsStr::from_bytes(b"\xff")]), 64, &[program]);
    }
}

/// Each program with the least it needs to get to its configuration, and the code for one that cannot be used.
fn configured(program: &str, file: &Path, pairs: &[(&str, &str)]) -> (Outcome, i32) {
    match subcommand(program) {
        Some(word) => {
            // CLI3: the dispatcher's own code for a bad start.
            let code = if program == "pepsi-dispatch" { 1 } else { 78 };
            (run_with(pairs, &[&program, &"-c", &file, &word]), code)
        }
        None => (run_with(pairs, &[&program, &"-C", &file, &"ann@example.org"]), 78),
    }
}

// Req: CLI5
#[test]
fn an_unusable_configuration_is_named_with_file_and_line() {
    let folder = Folder::new("config");
    let broken = folder.file("broken.conf", b"[pepsi]\n\nALLOW_FUSION yes\n");
    let bytes = folder.file("bytes.conf", b"[pepsi]\nX = \xff\n");
    let nested = folder.file("nested.conf", b"@inline@ none.conf\n");
    let missing = folder.0.join("missing.conf");
    for program in programs() {
        for (file, parts) in [
            (&broken, &["broken.conf:3:"][..]),
            (&bytes, &["bytes.conf:2:", "\\xff"]),
            (&nested, &["nested.conf:1:", "none.conf"]),
            (&missing, &["missing.conf", "No such file"]),
            (&folder.0, &["directory"]),
        ] {
            let (outcome, code) = configured(&program, file, &[]);
            refused(&outcome, code, parts);
        }
    }
}

// Req: CLI5
#[test]
fn the_configuration_is_searched_in_the_order_that_is_written_down() {
    let folder = Folder::new("search");
    let named = folder.file("named.conf", b"broken\n");
    fs::create_dir(folder.0.join(".config")).expect("a folder");
    let home = folder.0.to_str().expect("name");
    let variable = [("PEPSI_CONFIG", named.to_str().expect("name")), ("HOME", home)];
    let list = |pairs: &[(&str, &str)]| run_with(pairs, &[&"pepsi-queue", &"list"]);
    refused(&list(&variable), 78, &["named.conf:1:"]);
    folder.file(".config/pepsi.conf", b"\nbroken\n");
    refused(&list(&variable), 78, &["named.conf:1:"]);
    refused(&list(&variable[1..]), 78, &[".config/pepsi.conf:2:"]);
    refused(&list(&[("PEPSI_CONFIG", ""), ("HOME", home)]), 78, &[".config/pepsi.conf:2:"]);
    refused(&list(&[("PEPSI_CONFIG", "/nonexistent/a"), ("HOME", home)]), 78, &["/nonexistent/a"]);
    let option = run_with(&variable, &[&"pepsi-queue", &"-c", &"/nonexistent/b", &"list"]);
    refused(&option, 78, &["/nonexistent/b"]);
}

// Req: CLI5
#[test]
fn an_unreachable_database_is_named() {
    let folder = Folder::new("database");
    let config = b"[pepsi-postgres]\nCONFIG = postgres:///pepsi?host=/nonexistent/socket\n[stage-init]\nPROGRAM = pepsi-stage-discard\n";
    let file = folder.file("pepsi.conf", config);
    for program in programs() {
        let code = match program.as_str() {
            "pepsi-dispatch" => 1,
            "pepsi-sendmail" => 75,
            "pepsi-stage-discard" => 74,
            // The section is not theirs.
            stage if stage.starts_with("pepsi-stage-") => continue,
            _ => 69,
        };
        let (outcome, _) = configured(&program, &file, &[("PEPSI_STAGE", "init")]);
        refused(&outcome, code, &["/nonexistent/socket"]);
    }
}

// Req: CLI5
#[test]
fn a_bad_database_url_is_named() {
    let folder = Folder::new("url");
    let file = folder.file("pepsi.conf", b"[pepsi-postgres]\nCONFIG = mysql://x\n");
    refused(&configured("pepsi-queue", &file, &[]).0, 78, &["[pepsi-postgres] CONFIG"]);
    refused(&configured("pepsi-setup", &file, &[]).0, 78, &["[pepsi-postgres] CONFIG"]);
    refused(&configured("pepsi-sendmail", &file, &[]).0, 78, &["[pepsi-postgres] CONFIG"]);
}

// Req: CLI5
#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").expect("the device");
    let outcome = finish(Command::new(PEPSI).arg("--list").stdout(full()));
    refused(&outcome, 74, &["standard output"]);
    let mut closed = Command::new(PEPSI)
        .arg("--list")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(closed.stdout.take());
    let output = closed.wait_with_output().expect("ends");
    // Either it was written before the reader went away, or nobody is left to care.
    assert!(matches!(output.status.code(), Some(0 | 74)), "{:?}", output.status);
    assert_eq!(output.stderr, b"");
}

#[test]
fn a_log_line_is_one_line_whatever_it_names() {
    let hostile = OsStr::from_bytes(b"a\nerror pepsi forged\x1b[2J\xe2\x80\xae");
    let outcome = run_with(&[], &[&"pepsi-queue", &hostile]);
    refused(&outcome, 64, &["\\n", "\\x1b[2J", "\\u{202e}"]);
    let journal = run_with(&[("JOURNAL_STREAM", "8:1")], &[&"pepsi-queue"]);
    assert!(journal.err.starts_with("<3>error pepsi-queue no subcommand"), "{}", journal.err);
}
