//! Stages as processes on a real database, where what they do is more than the row that their unit tests look at.

mod harness;

use harness::{Database, database, pepsi};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

/// What a program has said.
struct Run {
    output: String,
    code: i32,
    log: String,
}

/// Runs a program with all its input at once.
fn run(program: &str, config: &Path, args: &[&str], input: &str) -> Run {
    let mut command = pepsi(program, config);
    let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
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
