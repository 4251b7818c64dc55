//! Deliveries by the real program: what is on disk under odd umasks, full disks and kills, and what the row says then.

mod harness;

use harness::{Config, Database, PATIENCE, Process, database, pepsi, wait_until};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAM: &str = "pepsi-stage-relay-to-maildir";

fn config(db: &Database, options: &[(&str, &str)]) -> Config {
    let mail = db.folder().join("mail");
    let _ = std::fs::create_dir(&mail);
    let maildir = format!("{}/${{domain}}/${{local}}/", mail.display());
    db.config().stage("relay", PROGRAM, &[("MAILDIR", &maildir)]).stage("relay", PROGRAM, options)
}

/// A claimed message; its id.
fn claimed(db: &mut Database, rcpt_to: &[&str], headers: &[u8], body: Option<&[u8]>) -> i64 {
    let add = "SELECT pepsi.workqueue_add('ann@x', $1, $2, $3, '{}', 'relay')";
    let id: i64 = db.client.query_one(add, &[&rcpt_to, &headers, &body]).expect("a row is added").get(0);
    db.run(&format!("UPDATE pepsi.workqueue SET status = 'running', claims = 1 WHERE workqueue_id = {id}"));
    id
}

fn row(db: &mut Database, id: i64) -> String {
    db.text(&format!(
        "SELECT coalesce((SELECT concat_ws(' ', stage, status, rcpt_to) FROM pepsi.workqueue WHERE workqueue_id = {id}), 'gone')"
    ))
}

fn last_error(db: &mut Database, id: i64) -> String {
    db.text(&format!("SELECT state ->> 'last_error' FROM pepsi.workqueue WHERE workqueue_id = {id}"))
}

/// Feeds `input`; the status lines, the exit code and the log.
fn deliver(mut command: Command, input: &str) -> (Vec<String>, i32, String) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let lines = String::from_utf8_lossy(&output.stdout).lines().skip(1).map(str::to_owned).collect();
    (lines, output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn worker(config: &Path) -> Command {
    let mut command = pepsi(PROGRAM, config);
    command.arg("worker");
    command
}

/// The worker behind a line of shell, such as `umask 0777`.
fn worker_after(line: &str, config: &Path) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("{line}; exec \"$0\" \"$@\"")]).arg(env!("CARGO_BIN_EXE_pepsi"));
    shell.args([PROGRAM, "-c"]).arg(config).arg("worker");
    shell
}

/// All files below `folder`, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        if entry.file_type().expect("a type").is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

fn mail(db: &Database) -> PathBuf {
    db.folder().join("mail")
}

#[test]
fn every_recipient_gets_the_message_byte_for_byte() {
    let mut db = database();
    let config = config(&db, &[]).write();
    let messages: [(&[u8], Option<&[u8]>); 7] = [
        (b"Subject: plain\r\n", Some(b"line\r\nlast")),
        (b"Subject: no body\r\n", None),
        (b"Subject: empty body\r\n", Some(b"")),
        (b"", Some(b"no header\r\n")),
        (b"no header and no empty line", None),
        (b"X: \xff\xfe\r\n", Some(b"\x00\x01\xff bare\rcr and\nlf\r\n\r\r\n")),
        (b"Subject: long\r\n", Some(&[b'x'; 300_000])),
    ];
    for (headers, body) in messages {
        let id = claimed(&mut db, &["bob@y.example", "Eve@Z.example"], headers, body);
        assert_eq!(deliver(worker(&config), &format!("{id} 1\n")), (vec!["0".into()], 0, String::new()));
        assert_eq!(row(&mut db, id), "gone");
        let mut raw = headers.to_vec();
        if let Some(body) = body {
            raw.extend_from_slice(b"\r\n");
            raw.extend_from_slice(body);
        }
        let expected = with_lf(&raw);
        for (path, rcpt) in [("y.example/bob", "bob@y.example"), ("z.example/Eve", "Eve@Z.example")] {
            let found = files(&mail(&db).join(path));
            assert_eq!(found.len(), 1, "{found:?}");
            let text = std::fs::read(&found[0]).expect("the file");
            let trace = format!("Return-Path: <ann@x>\nDelivered-To: {rcpt}\n");
            let original = text.strip_prefix(trace.as_bytes()).expect("the trace lines");
            assert!(original == expected, "{}", String::from_utf8_lossy(original));
            std::fs::remove_file(&found[0]).expect("ours");
        }
    }
}

/// Each CRLF as LF, worked out another way than the stage does.
fn with_lf(raw: &[u8]) -> Vec<u8> {
    let is_dropped = |at: usize| raw[at] == b'\r' && raw.get(at + 1) == Some(&b'\n');
    (0..raw.len()).filter(|at| !is_dropped(*at)).map(|at| raw[at]).collect()
}

#[test]
fn modes_do_not_depend_on_the_umask() {
    for umask in ["0777", "0077", "0000"] {
        let mut db = database();
        let config = config(&db, &[]).write();
        let id = claimed(&mut db, &["bob@y"], b"A: b\r\n", None);
        let (lines, _, log) = deliver(worker_after(&format!("umask {umask}"), &config), &format!("{id} 1\n"));
        assert_eq!(lines, ["0"], "{umask}: {log}");
        let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o7777;
        let found = files(&mail(&db));
        assert_eq!((found.len(), mode(&found[0])), (1, 0o600));
        for folder in ["y", "y/bob", "y/bob/tmp", "y/bob/new", "y/bob/cur"] {
            assert_eq!(mode(&mail(&db).join(folder)), 0o700, "{umask} {folder}");
        }
    }
}

// Req: L2
#[test]
fn a_worker_killed_between_write_and_commit_leaves_one_copy() {
    let mut db = database();
    let config = config(&db, &[]).write();
    let id = claimed(&mut db, &["bob@y", "eve@y"], b"A: b\r\n", Some(b"c"));
    let mut other = db.connect();
    let mut holding = other.transaction().expect("a transaction");
    holding.execute("SELECT FROM pepsi.workqueue WHERE workqueue_id = $1 FOR UPDATE", &[&id]).expect("a row");
    let mut command = worker(&config);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut process = Process::start(command, db.folder().join("log"));
    let mut input = process.child().stdin.take().expect("a pipe");
    writeln!(input, "{id} 1").expect("it reads");
    wait_until("it commits", PATIENCE, || {
        db.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
            > 0
    });
    process.kill();
    assert_eq!(files(&mail(&db)).len(), 2);
    // Its backend, which still waits, must not commit after all: the next claim fences it off.
    holding
        .execute("UPDATE pepsi.workqueue SET claims = 2 WHERE workqueue_id = $1", &[&id])
        .expect("the next claim");
    holding.commit().expect("the lock goes");
    let before = files(&mail(&db));
    assert_eq!(deliver(worker(&config), &format!("{id} 2\n")).0, ["0"]);
    assert_eq!(row(&mut db, id), "gone");
    assert_eq!(files(&mail(&db)), before);
}

#[test]
fn a_full_disk_puts_the_message_off_and_leaves_no_part_of_it() {
    let mut db = database();
    let config = config(&db, &[]).write();
    let id = claimed(&mut db, &["bob@y"], b"A: b\r\n", Some(&[b'x'; 1_000_000]));
    // A limit on the size of files stands in for the end of a disk: the write fails half way.
    let limited = "trap '' XFSZ; ulimit -f 512";
    let (lines, code, log) = deliver(worker_after(limited, &config), &format!("{id} 1\n"));
    assert_eq!((lines, code), (vec!["0".to_owned()], 0), "{log}");
    assert_eq!(row(&mut db, id), "relay paused {bob@y}");
    let error = last_error(&mut db, id);
    assert!(
        error.contains("cannot write") && error.contains("/y/bob/tmp/") && error.contains("os error 27"),
        "{error}"
    );
    assert!(log.contains("os error 27"), "{log}");
    assert_eq!(files(&mail(&db)), Vec::<PathBuf>::new());
    db.run("UPDATE pepsi.workqueue SET status = 'running', claims = 2");
    assert_eq!(deliver(worker(&config), &format!("{id} 2\n")).0, ["0"]);
    assert_eq!(files(&mail(&db)).len(), 1);
}

#[test]
fn a_folder_that_cannot_be_written_puts_the_message_off() {
    let mut db = database();
    let config = config(&db, &[]).write();
    let id = claimed(&mut db, &["bob@y"], b"A: b\r\n", None);
    let mut command = worker(&config);
    let is_root = std::fs::metadata("/proc/self").expect("/proc").uid() == 0;
    if is_root {
        // Root may write anywhere, so somebody else delivers.
        command.uid(65534).gid(65534);
        command.current_dir("/");
    } else {
        std::fs::set_permissions(mail(&db), PermissionsExt::from_mode(0o555)).expect("ours");
    }
    let (lines, code, log) = deliver(command, &format!("{id} 1\n"));
    assert_eq!((lines, code), (vec!["0".to_owned()], 0), "{log}");
    assert_eq!(row(&mut db, id), "relay paused {bob@y}");
    let error = last_error(&mut db, id);
    assert!(error.contains("/mail/y") && error.contains("os error 13"), "{error}");
}

#[test]
fn the_recipients_that_are_left_are_in_the_row() {
    let mut db = database();
    let config = config(&db, &[("BOUNCE_STAGE", "bounces")]).write();
    std::fs::create_dir(mail(&db).join("y")).expect("a folder");
    std::fs::write(mail(&db).join("y/bad"), "").expect("a file in the way");
    let id = claimed(&mut db, &["good@y", "bad@y", "bare"], b"A: b\r\n", None);
    assert_eq!(deliver(worker(&config), &format!("{id} 1\n")).0, ["0"]);
    assert_eq!(row(&mut db, id), "relay paused {bad@y,bare}");
    assert_eq!(files(&mail(&db).join("y/good")).len(), 1);
    std::fs::remove_file(mail(&db).join("y/bad")).expect("ours");
    db.run("UPDATE pepsi.workqueue SET status = 'running', claims = 2");
    assert_eq!(deliver(worker(&config), &format!("{id} 2\n")).0, ["0"]);
    assert_eq!(row(&mut db, id), "bounces pending {bare}");
    assert_eq!(files(&mail(&db)).len(), 2);
    let bounce = db.text("SELECT state -> 'bounce' ->> 'failed_recipient' FROM pepsi.workqueue");
    assert_eq!(bounce, "bare");
}

#[test]
fn hostile_addresses_stay_below_the_base() {
    let mut db = database();
    let config = config(&db, &[]).write();
    let hostile = [
        "../../../../../../tmp/pwned@x",
        "\"../..\"@x",
        "\"/etc/passwd\"@x",
        ".@x",
        "..@x",
        ".ssh@x",
        "a@..",
        "a@../../x",
        "a@.",
        "\"a b\"@x",
        "%2e%2e@x",
        "\"\\\"\"@x",
        "@",
        "",
        "x@",
        "new@x",
        "a\nb@x",
    ];
    let mut rcpt_to: Vec<&str> = hostile.to_vec();
    let long = format!("{}@x", "l".repeat(5000));
    rcpt_to.push(&long);
    let id = claimed(&mut db, &rcpt_to, b"A: b\r\n", None);
    let (lines, _, log) = deliver(worker(&config), &format!("{id} 1\n"));
    // Some of these are addresses and delivered; the rest is named in the failed row.
    assert_eq!(lines, ["1"], "{log}");
    let left = db.number("SELECT cardinality(rcpt_to)::bigint FROM pepsi.workqueue");
    let delivered = files(&mail(&db));
    assert_eq!(usize::try_from(left).expect("a count") + delivered.len(), rcpt_to.len(), "{delivered:?}");
    for path in delivered {
        let below = path.strip_prefix(mail(&db)).expect("below the base");
        let names: Vec<&str> = below.iter().filter_map(|name| name.to_str()).collect();
        assert!(
            names.len() == 4 && names[2] == "new" && !names[..2].iter().any(|name| name.starts_with('.')),
            "{names:?}"
        );
    }
    let outside: Vec<PathBuf> =
        files(db.folder()).into_iter().filter(|path| !path.starts_with(mail(&db))).collect();
    assert_eq!(outside, [db.folder().join("pepsi.conf")]);
}
