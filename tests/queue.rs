//! `pepsi-queue` as a process on a real database.

mod harness;

use harness::{Database, database, pepsi, shared};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A database with four messages; the third's stage has no section.
fn filled() -> (Database, PathBuf) {
    let mut db = database();
    db.run(
        "SELECT pepsi.workqueue_add('ann@x', '{bob@y}', E'Subject: one\r\nFrom: Ann <ann@x>\r\n', 'b', '{}', 'init');
         SELECT pepsi.workqueue_add('', '{bob@y,eve@y}', E'Subject: two\\x1b[2J\r\n', 'b', '{}', 'init');
         SELECT pepsi.workqueue_add('ann@x', '{eve@y}', E'Subject: three\r\n', 'b', '{}', 'gone');
         SELECT pepsi.workqueue_add('carl@z', '{bob@y}', E'Subject: four\r\n', NULL, '{}', 'init');
         UPDATE pepsi.workqueue SET status = 'paused', timeout = now() + interval '10 min', claims = 3,
             state = '{\"last_error\": \"no\\nway\\u001b[31m\"}' WHERE workqueue_id = 2;
         UPDATE pepsi.workqueue SET status = 'failed', state = '{\"dispatch_error\": \"killed\"}' WHERE workqueue_id = 4",
    );
    let config = db.config().stage("init", "pepsi-stage-discard", &[]).write();
    (db, config)
}

/// Output, exit code and log.
fn queue(config: &Path, args: &[&str]) -> (String, i32, String) {
    let output = pepsi("pepsi-queue", config).args(args).output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), output.status.code().unwrap_or(-1), text(&output.stderr))
}

fn objects(config: &Path, args: &[&str]) -> Vec<Value> {
    let (output, code, log) = queue(config, args);
    assert_eq!((code, log.as_str()), (0, ""), "{args:?}");
    output.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

fn ids(config: &Path, args: &[&str]) -> Vec<i64> {
    let all: Vec<&str> = ["list", "--json"].into_iter().chain(args.iter().copied()).collect();
    objects(config, &all).iter().map(|object| object["id"].as_i64().expect("an id")).collect()
}

#[test]
fn a_list_selects() {
    let (_db, config) = filled();
    for (args, expected) in [
        (&[][..], vec![1, 2, 3, 4]),
        (&["--stage", "init"], vec![1, 2, 4]),
        (&["--status", "paused"], vec![2]),
        (&["--sender", "ANN@x"], vec![1, 3]),
        (&["--sender", ""], vec![2]),
        (&["--rcpt", "eve@y"], vec![2, 3]),
        (&["--rcpt", "eve@y", "--stage", "gone"], vec![3]),
        (&["--limit", "4"], vec![1, 2, 3, 4]),
        (&["--stage", "nowhere"], vec![]),
    ] {
        assert_eq!(ids(&config, args), expected, "{args:?}");
    }
    let (output, code, log) = queue(&config, &["list", "--limit", "3"]);
    assert_eq!((output.lines().count(), code), (4, 0));
    assert!(log.contains("there are more messages"), "{log}");
}

// Req: W7
#[test]
fn a_list_is_a_table_that_says_where_and_why() {
    let (_db, config) = filled();
    let (output, code, log) = queue(&config, &["list"]);
    assert_eq!((code, log.as_str()), (0, ""));
    assert!(output.chars().all(|c| c == '\n' || !c.is_control()), "{output:?}");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["ID", "STAGE", "STATUS", "AGE", "DUE", "CLAIMS", "SENDER", "RECIPIENTS", "WHY"]
    );
    assert!(
        lines[2].contains("<>") && lines[2].contains("bob@y +1") && lines[2].contains("no\\nway\\x1b[31m")
    );
    assert!(lines[2].contains("  10m  3  ") || lines[2].contains("  9m  "), "{}", lines[2]);
    assert!(lines[3].ends_with("there is no section [stage-gone]"), "{}", lines[3]);
    assert!(lines[4].contains("failed") && lines[4].ends_with("killed"), "{}", lines[4]);
}

// Req: W7, C1
#[test]
fn a_stage_that_is_in_the_overlay_alone_has_a_section() {
    let (mut db, config) = filled();
    db.run("INSERT INTO pepsi.config_override (scope, section, option, value) VALUES ('global', 'stage-gone', 'PROGRAM', 'p')");
    assert_eq!(objects(&config, &["list", "--json", "--stage", "gone"])[0]["why"], Value::Null);
}

#[test]
fn one_message_is_shown() {
    let (_db, config) = filled();
    let (output, code, _) = queue(&config, &["show", "2"]);
    assert_eq!(code, 0);
    assert!(output.chars().all(|c| c == '\n' || !c.is_control()), "{output:?}");
    for part in [
        "recipients   bob@y\nrecipients   eve@y\n",
        "sender_key   null:y\n",
        "size ",
        "received_at  20",
        "claims       3\n",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    let object = objects(&config, &["show", "--json", "1"]).remove(0);
    assert_eq!(object["subject"], "one");
    assert_eq!(object["header_from"], "Ann <ann@x>");
    assert_eq!(object["recipients"], serde_json::json!(["bob@y"]));
    let (output, code, log) = queue(&config, &["show", "99"]);
    assert_eq!((output.as_str(), code), ("", 1));
    assert!(log.contains("no message 99") && log.lines().count() == 1, "{log}");
}

// Req: CLI5
#[test]
fn what_cannot_be_done_is_one_line_and_a_code() {
    let (db, config) = filled();
    let away = db.config().set("pepsi-postgres", "CONFIG", &db.url.replace("host=", "host=/nonexistent"));
    let empty = shared().empty_database();
    for (config, args, code, word) in [
        (config.clone(), &["lst"][..], 64, "lst"),
        (config.clone(), &[], 64, "subcommand"),
        (config.clone(), &["list", "--status", "x"], 64, "pending"),
        (config.clone(), &["list", "-v"], 64, "before"),
        (db.folder().join("none.conf"), &["list"], 78, "none.conf"),
        (empty.config().write(), &["list"], 78, "pepsi-setup schema"),
        (away.write(), &["list"], 69, "/nonexistent"),
    ] {
        let (output, found, log) = queue(&config, args);
        assert_eq!((output.as_str(), found), ("", code), "{args:?}: {log}");
        assert!(log.lines().count() == 1 && log.contains(word), "{log}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_news() {
    let (mut db, config) = filled();
    db.run("INSERT INTO pepsi.workqueue (mail_from, rcpt_to, headers) SELECT 'a@b', '{c@d}', '' FROM generate_series(1, 2000)");
    let mut command: Command = pepsi("pepsi-queue", &config);
    command.args(["list", "--limit", "2000"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!log.contains("error") && !log.contains("panic"), "{log}");
}
