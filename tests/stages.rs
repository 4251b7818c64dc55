//! Stages as processes on a real database, where what they do is more than the row that their unit tests look at.

#[path = "stages/dsn.rs"]
mod dsn;
mod harness;
#[path = "stages/lost.rs"]
mod lost;
#[path = "stages/settings.rs"]
mod settings;

use harness::{Database, database, pepsi};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a program has said.
struct Run {
    output: String,
    code: i32,
    log: String,
}

/// Runs a program with all its input at once.
fn run(program: &str, config: &Path, args: &[&str], input: &str) -> Run {
    finish(pepsi(program, config).args(args), input)
}

/// The worker of one stage.
fn run_as(program: &str, stage: &str, config: &Path, input: &str) -> Run {
    finish(pepsi(program, config).arg("worker").env("PEPSI_STAGE", stage), input)
}

fn finish(command: &mut Command, input: &str) -> Run {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    // One that refuses to start does not read.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Run { output: text(&output.stdout), code: output.status.code().unwrap_or(-1), log: text(&output.stderr) }
}

fn worker(program: &str, config: &Path, input: &str) -> Run {
    run(program, config, &["worker"], input)
}

/// A message that was claimed once; its id.
fn claimed(db: &mut Database, stage: &str, mail_from: &str, rcpt_to: &[&str], state: &str) -> i64 {
    let add = "SELECT pepsi.workqueue_add($1, $2, 'Subject: s\r\n', 'body', $3::text::jsonb, $4)";
    let id: i64 = db.client.query_one(add, &[&mail_from, &rcpt_to, &state, &stage]).expect("a row").get(0);
    db.run(&format!("UPDATE pepsi.workqueue SET status = 'running', claims = 1 WHERE workqueue_id = {id}"));
    id
}

/// stage, status, sender and recipients of every row, by its id.
fn rows(db: &mut Database) -> String {
    db.text(
        "SELECT string_agg(concat_ws(' ', stage, status, '<' || mail_from || '>', array_to_string(rcpt_to, ',')), E'\\n'
                           ORDER BY workqueue_id) FROM pepsi.workqueue",
    )
}

// Req: A5
#[test]
fn a_rewritten_sender_leads_back_and_a_forged_one_to_the_bounce_stage() {
    let mut db = database();
    let secrets = db.folder().join("secrets");
    fs::write(&secrets, "the secret of this year\nthe secret of last year\n").expect("written");
    fs::set_permissions(&secrets, Permissions::from_mode(0o640)).expect("set");
    let srs = [("SRS_DOMAIN", "srs.example"), ("SECRET_FILE", secrets.to_str().expect("a path"))];
    let config = db
        .config()
        .stage(
            "leave",
            "pepsi-stage-srs",
            &[&srs[..], &[("MODE", "forward"), ("NEXT_STAGE", "send")]].concat(),
        )
        .stage(
            "back",
            "pepsi-stage-srs",
            &[&srs[..], &[("MODE", "reverse"), ("NEXT_STAGE", "sort"), ("BOUNCE_STAGE", "bounced")]].concat(),
        )
        .write();
    let out = claimed(&mut db, "leave", "Ann@example.net", &["bob@example.org"], "{}");
    let run = worker("pepsi-stage-srs", &config, &format!("{out} 1\n"));
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n0\n", 0), "{}", run.log);
    let sender = db.text(&format!("SELECT mail_from FROM pepsi.workqueue WHERE workqueue_id = {out}"));
    assert!(sender.starts_with("SRS0=") && sender.ends_with("=example.net=Ann@srs.example"), "{sender}");
    db.run("DELETE FROM pepsi.workqueue");

    let forged = sender.replace("example.net", "example.com");
    let dsn = r#"{"dsn": {"envid": "e", "rcpt": [{"orcpt": "1"}, {"orcpt": "2"}, {"orcpt": "3"}]}}"#;
    let back = claimed(&mut db, "back", "", &[&sender, &forged, "postmaster@srs.example"], dsn);
    let run = worker("pepsi-stage-srs", &config, &format!("{back} 1\n"));
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n0\n", 0), "{}", run.log);
    let expected =
        format!("sort pending <> Ann@example.net,postmaster@srs.example\nbounced pending <> {forged}");
    assert_eq!(rows(&mut db), expected);
    let states = db.text(
        "SELECT string_agg(concat(jsonb_path_query_array(state, '$.dsn.rcpt[*].orcpt'), state #>> '{bounce,failed_recipient}'),
                           ' ' ORDER BY workqueue_id) FROM pepsi.workqueue",
    );
    assert_eq!(states, format!(r#"["1", "3"] ["2"]{forged}"#));

    fs::set_permissions(&secrets, Permissions::from_mode(0o644)).expect("set");
    let run = worker("pepsi-stage-srs", &config, "1 1\n");
    assert_eq!((run.output.as_str(), run.code), ("", 78));
    assert!(run.log.contains("SECRET_FILE") && !run.log.contains("this year"), "{}", run.log);
}

const CHECK: &str = "pepsi-stage-check-whitelist";
const LEARN: &str = "pepsi-stage-auto-whitelist";

fn whitelist(config: &Path, args: &[&str], input: &str) -> Run {
    run("pepsi-whitelist", config, args, input)
}

// Req: A5, X1
#[test]
fn whom_our_users_write_to_they_take_mail_from() {
    let mut db = database();
    let config = db
        .config()
        .stage("learn", LEARN, &[("NEXT_STAGE", "send")])
        .stage(
            "check",
            CHECK,
            &[("LISTED_STAGE", "deliver"), ("NEXT_STAGE", "filter"), ("RECIPIENT_DELIMITER", "+")],
        )
        .write();
    let ours = r#"{"origin": {"auth_user": "ann"}}"#;
    let sent = claimed(&mut db, "learn", "Ann@x", &["Bob@y", "carl@z"], ours);
    for _ in 0..2 {
        let run = worker(LEARN, &config, &format!("{sent} 1\n"));
        assert_eq!((run.output.as_str(), run.code), ("ready claims\n0\n", 0), "{}", run.log);
        // As if its end had not been written.
        db.run("UPDATE pepsi.workqueue SET status = 'running', stage = 'learn'");
    }
    let listed = db.text("SELECT string_agg(concat_ws(' ', address, correspondent, source), ',' ORDER BY 2) FROM pepsi.whitelist");
    assert_eq!(listed, "ann@x bob@y learn,ann@x carl@z learn");
    // Whoever does not want it says so for the own address.
    db.run(
        "INSERT INTO pepsi.settings (address, stage, option, value) VALUES ('eve@x', 'learn', 'LEARN', 'no')",
    );
    let unlisted = claimed(&mut db, "learn", "Eve@x", &["bob@y"], r#"{"local_origin": true}"#);
    let run = worker(LEARN, &config, &format!("{unlisted} 1\n"));
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n0\n", 0), "{}", run.log);
    assert_eq!(db.number("SELECT count(*) FROM pepsi.whitelist WHERE address = 'eve@x'"), 0);
    db.run("DELETE FROM pepsi.workqueue");

    let dsn = r#"{"dsn": {"rcpt": [{"orcpt": "1"}, {"orcpt": "2"}, {"orcpt": "3"}]}}"#;
    let mut ids = vec![claimed(&mut db, "check", "BOB@y", &["dan@x", "ann@x", "ann+list@x"], dsn)];
    ids.push(claimed(&mut db, "check", "", &["ann@x"], "{}"));
    ids.push(claimed(&mut db, "check", "carl@z", &["ann@x"], "{}"));
    let lines: String = ids.iter().map(|id| format!("{id} 1\n")).collect();
    let run = worker(CHECK, &config, &lines);
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n0\n0\n0\n", 0), "{}", run.log);
    let mut left: Vec<String> = rows(&mut db).lines().map(str::to_owned).collect();
    left.sort();
    assert_eq!(
        left,
        [
            "deliver pending <BOB@y> ann@x,ann+list@x",
            "deliver pending <carl@z> ann@x",
            "filter pending <> ann@x",
            "filter pending <BOB@y> dan@x",
        ]
    );
    let orcpt = "SELECT jsonb_path_query_array(state, '$.dsn.rcpt[*].orcpt')::text FROM pepsi.workqueue WHERE cardinality(rcpt_to) = 2";
    assert_eq!(db.text(orcpt), r#"["2", "3"]"#);
}

// Req: CLI5
#[test]
fn a_whitelist_is_seen_and_changed_and_imported_but_for_what_is_wrong() {
    let mut db = database();
    let config = db.config().write();
    let ok = |args: &[&str]| {
        let run = whitelist(&config, args, "");
        assert_eq!((run.code, run.log.as_str()), (0, ""), "{args:?}");
        run.output
    };
    ok(&["add", "Bob@x", "ann@Y", "@z"]);
    ok(&["add", "bob@x", "ANN@y"]);
    ok(&["add", "eve@x", "ann@y"]);
    let table = ok(&["list"]);
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(
        lines,
        [
            ["ADDRESS", "CORRESPONDENT", "SOURCE"],
            ["bob@x", "@z", "manual"],
            ["bob@x", "ann@y", "manual"],
            ["eve@x", "ann@y", "manual"]
        ]
    );
    let lines = ok(&["list", "--json", "--correspondent", "Ann@y", "--address", "eve@x"]);
    let object: serde_json::Value = serde_json::from_str(&lines).expect("one object");
    assert_eq!((&object["address"], &object["correspondent"]), (&"eve@x".into(), &"ann@y".into()));
    let few = whitelist(&config, &["list", "--limit", "2"], "");
    assert_eq!((few.code, few.output.lines().count()), (0, 3));
    assert!(few.log.contains("there are more entries"), "{}", few.log);
    ok(&["remove", "BOB@x", "ann@y", "nobody@y"]);
    let none = whitelist(&config, &["remove", "bob@x", "ann@y"], "");
    assert_eq!((none.code, none.log.lines().count()), (1, 1), "{}", none.log);

    let text = "# ours\nbob@x ann@y\n\nbob@x\nbob@x Carl@y\nbob@x a b@y\nbob@x carl@y\n";
    let many: String = (0..2500).map(|number| format!("many@x c{number}@y\n")).collect();
    let file = db.folder().join("pairs");
    fs::write(&file, format!("{text}{many}bob@x last@y")).expect("written");
    let run = whitelist(&config, &["import", file.to_str().expect("a path")], "");
    assert_eq!((run.code, run.output.as_str()), (65, ""), "{}", run.log);
    let log: Vec<&str> = run.log.lines().collect();
    assert!(log.len() == 3 && log[0].contains("/pairs:4: ") && log[1].contains("/pairs:6: "), "{}", run.log);
    assert!(log[2].ends_with("imported pairs=2504 new=2503 wrong=2"), "{}", run.log);
    assert_eq!(db.number("SELECT count(*) FROM pepsi.whitelist WHERE address = 'bob@x'"), 4);
    ok(&["remove", "many@x", "--all"]);
    assert_eq!(db.number("SELECT count(*) FROM pepsi.whitelist"), 5);
    let run = whitelist(&config, &["import"], "bob@x dan@y\n");
    assert_eq!((run.code, run.log.lines().count()), (0, 1), "{}", run.log);
    let gone = whitelist(&config, &["import", "/nonexistent/pairs"], "");
    assert!(gone.code == 74 && gone.log.contains("/nonexistent/pairs"), "{}", gone.log);
    let folder = whitelist(&config, &["import", "/"], "");
    assert_eq!((folder.code, folder.log.lines().count()), (74, 1), "{}", folder.log);
}
