//! The whole line on a private PostgreSQL: pepsi-sendmail, the dispatcher, `if`, `discard`, `relay-to-maildir`; and what is
//! left of a load whose dispatcher is killed in the middle of it.

mod harness;

use harness::{Config, Database, PATIENCE, Process, database, holds_within, pepsi, wait_until};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PROGRESS: std::time::Duration = std::time::Duration::from_secs(120);

/// Messages to *@discard.example are dropped, all others delivered.
fn two_stages(database: &Database) -> Config {
    let config = stages_without_base(database);
    fs::create_dir(database.folder().join("mail")).expect("the base of all Maildirs");
    config
}

/// As `two_stages`, before somebody made the folder that the Maildirs are in.
fn stages_without_base(database: &Database) -> Config {
    let maildir = format!("{}/${{domain}}/${{local}}", database.folder().join("mail").display());
    database
        .config()
        .stage(
            "init",
            "pepsi-stage-if",
            &[
                ("FIELD", "rcpt_to"),
                ("SUFFIX", "@discard.example"),
                ("THEN_STAGE", "bin"),
                ("NEXT_STAGE", "deliver"),
            ],
        )
        .stage("bin", "pepsi-stage-discard", &[])
        .stage("deliver", "pepsi-stage-relay-to-maildir", &[("MAILDIR", &maildir)])
}

fn dispatcher(database: &Database, config: &Path, log: &str) -> Process {
    let mut command = pepsi("pepsi-dispatch", config);
    command.arg("serve");
    Process::start_quiet(command, database.folder().join(log))
}

fn feed(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    // A program that refuses early closes its input: what it says counts, not the broken pipe.
    let _ = child.stdin.take().expect("it has an input").write_all(input);
    child.wait_with_output().expect("it ends")
}

fn send(config: &Path, recipients: &[&str], message: &[u8]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pepsi"));
    command
        .arg("pepsi-sendmail")
        .arg("-C")
        .arg(config)
        .args(["-i", "-f", "ann@demo.example", "--"])
        .args(recipients);
    let output = feed(command, message);
    assert!(output.status.success(), "pepsi-sendmail: {output:?}");
}

fn delivered(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder.join("new")) else { return Vec::new() };
    entries.map(|entry| entry.expect("a readable folder").path()).collect()
}

fn lf(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len());
    for (at, byte) in message.iter().enumerate() {
        if *byte != b'\r' || message.get(at + 1) != Some(&b'\n') {
            out.push(*byte);
        }
    }
    out
}

fn is_empty(database: &mut Database) -> bool {
    database.number("SELECT count(*) FROM pepsi.workqueue") == 0
}

/// Requirements A8 and the mission: what went in comes out, with fields in front and nothing else changed.
// Req: A8
// Req: W2
// Req: P6
#[test]
fn every_byte_of_odd_messages_arrives() {
    let mut database = database();
    let config = two_stages(&database).write();
    let odd: &[(&str, &[u8])] = &[
        ("plain", b"Subject: x\n\nhello\n"),
        ("crlf", b"Subject: x\r\n\r\none\r\ntwo\r\n"),
        ("no-body", b"Subject: x\nX-Last: y\n"),
        ("no-header", b"just text\nmore: of it\n"),
        ("only-empty-lines", b"\n\n\n"),
        ("empty", b""),
        ("bare-cr", b"Subject: a\rb\n\none\rtwo\r\r\n\r"),
        ("no-line-end", b"Subject: x\n\nend"),
        ("eight-bit", b"Subject: caf\xe9\nX: \xff\xfe\n\n\x80\x81\n"),
        ("dots", b"Subject: x\n\n.\n..\n"),
        ("long", &[b"Subject: x\n\n".as_slice(), &[b'y'; 20_000], b"\n"].concat()),
        ("folded", b"Subject: a\n b\n\tc\n\nx\n"),
    ];
    let running = dispatcher(&database, &config, "dispatch.log");
    for (name, message) in odd {
        send(&config, &[&format!("{name}@demo.example")], message);
    }
    send(&config, &["gone@discard.example"], b"Subject: x\n\nx\n");
    wait_until("the queue is empty", PATIENCE, || is_empty(&mut database));
    for (name, message) in odd {
        let files = delivered(&database.folder().join("mail/demo.example").join(name));
        assert_eq!(files.len(), 1, "{name}: {}", running.log());
        let content = fs::read(&files[0]).expect("a delivered file");
        let wanted = lf(message);
        assert!(content.ends_with(&wanted), "{name}: {}", String::from_utf8_lossy(&content));
        let added =
            String::from_utf8(content[..content.len() - wanted.len()].to_vec()).expect("our own fields");
        for field in ["Return-Path: <ann@demo.example>\n", "Received: ", "Message-ID: ", "Date: "] {
            assert!(added.contains(field), "{name} lacks {field}: {added}");
        }
        let mode = fs::metadata(&files[0]).expect("a delivered file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert!(!database.folder().join("mail/discard.example").exists());
    wait_until("bodies went with their rows", PATIENCE, || {
        database.number("SELECT count(*) FROM pepsi.workqueue_body") == 0
    });
}

/// Statistics count every pass, and finished messages, by the time the pipeline is idle.
// Req: K1
// Req: K2
// Req: K3
#[test]
fn statistics_are_whole_when_idle() {
    let mut database = database();
    let config = two_stages(&database).write();
    for number in 0..5 {
        send(&config, &["a@demo.example"], format!("Subject: {number}\n\nx\n").as_bytes());
    }
    send(&config, &["a@discard.example"], b"Subject: x\n\nx\n");
    let mut running = dispatcher(&database, &config, "dispatch.log");
    let all =
        "SELECT concat_ws(' ', stages_executed, messages_finished, messages_failed, serialization_failures)
               FROM pepsi.dispatch_stats";
    // One of them goes from `init` to `bin` in one pass.
    wait_until("the totals are written", PATIENCE, || database.text(all) == "11 6 0 0");
    let stages = "SELECT string_agg(stage || '=' || messages, ' ' ORDER BY stage) FROM pepsi.stage_stats";
    assert_eq!(database.text(stages), "bin=1 deliver=5 init=6");
    running.signal("TERM");
    assert_eq!(running.wait(PATIENCE), 0);
    assert_eq!(database.text(all), "11 6 0 0", "nothing is counted twice");
}

/// A dispatcher that is killed over and over in mid-load: audited by id.
// Req: D2
// Req: D4
// Req: D5
#[test]
fn a_killed_dispatcher_loses_and_repeats_nothing() {
    const MESSAGES: i64 = 400;
    let mut database = database();
    let config = two_stages(&database).write();
    database.run(&format!(
        "SELECT pepsi.workqueue_add('s' || n % 7 || '@demo.example', ARRAY['r@demo.example'],
             convert_to('Subject: ' || n || E'\\r\\n', 'UTF8'), convert_to(repeat('x', 3000), 'UTF8'))
         FROM generate_series(1, {MESSAGES}) n"
    ));
    let mut kills = 0;
    for wanted in [20, 80, 150, 250, 330] {
        let mut running = dispatcher(&database, &config, &format!("dispatch-{wanted}.log"));
        let left = MESSAGES - wanted;
        let count = "SELECT count(*) FROM pepsi.workqueue";
        assert!(
            holds_within(PROGRESS, || database.number(count) <= left),
            "no progress to {wanted}: {}",
            running.log()
        );
        running.kill();
        kills += 1;
        let orphans = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND application_name LIKE 'pepsi-stage%'",
            database.name
        );
        wait_until("no worker outlives it", PATIENCE, || database.number(&orphans) == 0);
    }
    assert_eq!(kills, 5);
    let mut last = dispatcher(&database, &config, "dispatch-last.log");
    wait_until("the queue is empty", PROGRESS, || is_empty(&mut database));
    last.signal("TERM");
    assert_eq!(last.wait(PATIENCE), 0, "{}", last.log());
    let mut copies: BTreeMap<String, u32> = BTreeMap::new();
    for file in delivered(&database.folder().join("mail/demo.example/r")) {
        let content = fs::read_to_string(&file).expect("a delivered file");
        let subject =
            content.lines().find(|line| line.starts_with("Subject: ")).expect("its Subject").to_owned();
        assert!(content.ends_with(&"x".repeat(3000)), "{subject} is cut");
        *copies.entry(subject).or_default() += 1;
    }
    let twice: Vec<_> = copies.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "delivered twice: {twice:?}");
    assert_eq!(copies.len(), MESSAGES as usize, "lost");
    let tmp = fs::read_dir(database.folder().join("mail/demo.example/r/tmp")).expect("tmp").count();
    assert!(tmp <= kills * 4, "{tmp} files in tmp after {kills} kills of at most 4 workers");
}

/// The manual form: one id in, `ready claims` and one status out, and the row moved on.
// Req: CLI4
#[test]
fn a_worker_by_hand() {
    let mut database = database();
    let config = two_stages(&database).write();
    send(&config, &["a@demo.example"], b"Subject: x\n\nx\n");
    let id = database.number("SELECT workqueue_id FROM pepsi.workqueue");
    let run = |input: &str| {
        let mut command = pepsi("pepsi-stage-if", &config);
        command.arg("worker");
        feed(command, input.as_bytes())
    };
    let refused = run(&format!("{id}\n"));
    assert_eq!(String::from_utf8_lossy(&refused.stdout), "ready claims\n1\n");
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("pending") && said.contains(&id.to_string()), "{said}");
    let row = "SELECT concat_ws(' ', stage, status, claims) FROM pepsi.workqueue";
    assert_eq!(database.text(row), "init pending 0", "nothing changed");
    database.run("UPDATE pepsi.workqueue SET status = 'running', claims = claims + 1");
    let done = run(&format!("{id}\n"));
    assert_eq!(String::from_utf8_lossy(&done.stdout), "ready claims\n0\n", "{done:?}");
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(database.text(row), "deliver pending 1");
}

/// A Maildir that cannot be written is the host's fault: the message waits, says why, and arrives once it can.
// Req: S1
// Req: E7
#[test]
fn an_unwritable_maildir_delays_and_loses_nothing() {
    let mut database = database();
    let config = stages_without_base(&database).write();
    let running = dispatcher(&database, &config, "dispatch.log");
    send(&config, &["a@demo.example"], b"Subject: x\n\nx\n");
    let waits = "SELECT count(*) FROM pepsi.workqueue WHERE status = 'paused' AND stage = 'deliver'
                 AND state ->> 'last_error' LIKE '%mail%' AND (state ->> 'temporary_failures')::int = 1
                 AND timeout > now()";
    wait_until("the row waits and says why", PATIENCE, || database.number(waits) == 1);
    running.wait_for_log("pepsi-stage-relay-to-maildir", PATIENCE);
    fs::create_dir(database.folder().join("mail")).expect("the base of all Maildirs");
    // The retry is brought forward by the clock of the row; the dispatcher has to notice by its own.
    database.run("UPDATE pepsi.workqueue SET timeout = now() WHERE status = 'paused'; NOTIFY workqueue");
    wait_until("it arrives", PATIENCE, || is_empty(&mut database));
    assert_eq!(delivered(&database.folder().join("mail/demo.example/a")).len(), 1);
}
