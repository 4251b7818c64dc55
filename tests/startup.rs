//! What each program says at its start to a database that is not there, or whose schema is not this release's.

mod harness;

use harness::{Config, Database, PATIENCE};
use std::process::{Command, Output, Stdio};

/// Each program as it is started, with its code for a database that a person must see to, and for a wrong schema.
const STARTS: &[(&str, &[&str], i32, i32)] = &[
    ("pepsi-dispatch", &["serve"], 1, 78),
    ("pepsi-queue", &["list"], 78, 78),
    ("pepsi-queue", &["show", "1"], 78, 78),
    ("pepsi-whitelist", &["list"], 78, 78),
    ("pepsi-stage-discard", &["worker"], 78, 78),
    ("pepsi-sendmail", &["ann@example.org"], 78, 78),
];

fn start(program: &str, args: &[&str], config: &Config) -> Output {
    let file = config.clone().stage("init", "pepsi-stage-discard", &[]).write();
    let mut command: Command = harness::pepsi(program, &file);
    if program == "pepsi-sendmail" {
        command = Command::new(env!("CARGO_BIN_EXE_pepsi"));
        command.arg(program).arg("-C").arg(&file);
    }
    let child = command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("it runs");
    if !harness::holds_within(PATIENCE, || child.try_wait().expect("a child").is_some()) {
        let _ = child.kill();
    }
    child.wait_with_output().expect("it ends")
}

/// It ends with `code` and says it in a last line that holds `part`; before that the dispatcher may say that it began.
#[track_caller]
fn refuses(outputs: &[(&str, Output, i32)], part: &str) {
    for (program, output, code) in outputs {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{program}: {said}");
        let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error ")).collect();
        assert!(errors.len() == 1 && errors[0].contains(part), "{program}: no single {part:?} in: {said}");
        assert!(!said.contains("internal error"), "{program}: {said}");
        assert_eq!(output.stdout, b"", "{program}");
    }
}

fn all(config: &Config, code: impl Fn(i32, i32) -> i32) -> Vec<(&'static str, Output, i32)> {
    let starts = STARTS.iter();
    starts
        .map(|(name, args, setup, schema)| (*name, start(name, args, config), code(*setup, *schema)))
        .collect()
}

// Req: CLI5
#[test]
fn a_missing_database_is_named() {
    let db = harness::database();
    let config = db.config().set("pepsi-postgres", "CONFIG", &harness::shared().url("no_such_database"));
    refuses(&all(&config, |setup, _| setup), "no_such_database");
}

// Req: CLI5
#[test]
fn a_role_that_is_not_there_is_named() {
    let db = harness::database();
    let url = harness::shared().url(&db.name).replace("postgres@", "no_such_role@");
    refuses(&all(&db.config().set("pepsi-postgres", "CONFIG", &url), |setup, _| setup), "no_such_role");
}

// Req: CLI3, CLI5
#[test]
fn a_database_without_the_schema_gets_the_way_out() {
    let db = harness::shared().empty_database();
    refuses(&all(&db.config(), |_, schema| schema), "pepsi-setup schema");
}

/// Changes the list of installed files, and awaits that every program says so.
fn schema_is(statement: &str, part: &str) {
    let mut db: Database = harness::database();
    db.run(statement);
    refuses(&all(&db.config(), |_, schema| schema), part);
}

// Req: CLI3, CLI5
#[test]
fn a_newer_an_older_and_a_changed_schema_are_told_apart() {
    schema_is(
        "INSERT INTO pepsi.schema_version (patch, checksum, installed_at) VALUES ('9999', 'x', now())",
        "newer",
    );
    schema_is("DELETE FROM pepsi.schema_version WHERE patch = '0001'", "older");
    schema_is("DELETE FROM pepsi.schema_version WHERE patch = 'procedures'", "pepsi-setup schema");
    schema_is("UPDATE pepsi.schema_version SET checksum = 'x' WHERE patch = '0001'", "0001");
}

// Req: CLI3
#[test]
fn the_dispatcher_ends_with_1_for_a_graph_that_does_not_parse() {
    let db = harness::database();
    let config =
        db.config().set("stage-init", "PROGRAM", "").set("stage-init", "PARALLELISM", "none").write();
    let output = harness::pepsi("pepsi-dispatch", &config).arg("serve").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("pepsi.conf:") && said.contains("PARALLELISM"), "{said}");
}
