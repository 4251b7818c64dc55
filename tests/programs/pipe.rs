//! Programs for messages, run by the real worker on a real database: what the row says then, and what is left of the program.

use crate::harness::{Config, Database, PATIENCE, Process, database, pepsi, wait_until};
use crate::talk::{Talk, worker};
use std::path::Path;

const PIPE: &str = "pepsi-stage-pipe";

/// The stage `pipe` with a script, from which messages go on to `next`.
fn config(db: &Database, script: &str, options: &[(&str, &str)]) -> Config {
    let file = db.folder().join("script");
    std::fs::write(&file, script).expect("a file");
    let command = format!("/bin/sh {} ${{sender}}", file.display());
    let all = [&[("COMMAND", command.as_str()), ("NEXT_STAGE", "next")], options].concat();
    db.config().stage("pipe", PIPE, &all)
}

fn claimed(db: &mut Database, rcpt_to: &[&str], headers: &[u8], body: Option<&[u8]>) -> i64 {
    let state = r#"{"origin": {"client_ip": "192.0.2.1"}, "dsn": {"ret": "HDRS", "rcpt": [{"orcpt": "rfc822;a@x"}, {"orcpt": "rfc822;b@x"}]}}"#;
    let add = "SELECT pepsi.workqueue_add('ann@x', $1, $2, $3, $4::text::jsonb, 'pipe')";
    let row = db.client.query_one(add, &[&rcpt_to, &headers, &body, &state]).expect("a row is added");
    let id = row.get(0);
    claim(db, id);
    id
}

fn claim(db: &mut Database, id: i64) {
    let claim = "UPDATE pepsi.workqueue SET status = 'running', claims = 1 WHERE workqueue_id = $1";
    db.client.execute(claim, &[&id]).expect("a claim");
}

fn row(db: &mut Database, id: i64) -> String {
    db.text(&format!(
        "SELECT coalesce((SELECT concat_ws(' ', stage, status, rcpt_to) FROM pepsi.workqueue WHERE workqueue_id = {id}), 'gone')"
    ))
}

fn is_alive(file: &Path) -> bool {
    let pid = std::fs::read_to_string(file).expect("the script has written it");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

// Req: A3, A4, R4
#[test]
fn what_a_program_prints_reaches_the_row_and_never_the_protocol() {
    let mut db = database();
    let script = "echo 0; echo 1; echo ready >&2; printf '0\\n1\\n' > /dev/fd/1";
    let id = claimed(&mut db, &["a@x", "b@x"], b"Subject: old\r\n", Some(b"one\r\n"));
    let run = worker(PIPE, &config(&db, script, &[]).write(), &format!("{id} 1\n"));
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n0\n", 0), "{}", run.log);
    assert_eq!(row(&mut db, id), "next pending {a@x,b@x}");

    let id = claimed(&mut db, &["a@x", "b@x"], b"Subject: old\r\n", Some(b"one\r\n"));
    let script = "echo \"Subject: for $RECIPIENTS from $CLIENT_ADDRESS\" | tr '\\n' ' '; echo; sed -e 1d -e s/one/two/";
    let config = config(&db, script, &[("CAPTURE", "yes")]).write();
    let run = worker(PIPE, &config, &format!("{id} 1\n"));
    assert_eq!(run.output, "ready claims\n0\n", "{}", run.log);
    let written = format!(
        "SELECT concat_ws('|', subject, encode(headers, 'escape'), encode(body, 'escape'), state #>> '{{dsn,rcpt,1,orcpt}}')
         FROM pepsi.workqueue JOIN pepsi.workqueue_body USING (body_id) WHERE workqueue_id = {id}"
    );
    let subject = "for a@x b@x from 192.0.2.1";
    assert_eq!(db.text(&written), format!("{subject}|Subject: {subject} \r\n|two\r\n|rfc822;b@x"));
    assert_eq!(row(&mut db, id), "next pending {a@x,b@x}");
}

// Req: A5
#[test]
fn a_message_to_several_becomes_one_row_each_before_a_program_for_one_is_run() {
    let mut db = database();
    let script = "cat > /dev/null; [ \"$RECIPIENT\" = a@x ] || exit 65";
    let config = config(&db, script, &[("ONE_RECIPIENT", "yes")]).write();
    let id = claimed(&mut db, &["a@x", "b@x"], b"A: b\r\n", Some(b"x"));
    assert_eq!(worker(PIPE, &config, &format!("{id} 1\n")).output, "ready claims\n0\n");
    let rows = "SELECT string_agg(concat_ws(' ', stage, status, rcpt_to, state #>> '{dsn,rcpt}'), '|' ORDER BY rcpt_to)
                FROM pepsi.workqueue";
    let (a, b) = (r#"{a@x} [{"orcpt": "rfc822;a@x"}]"#, r#"{b@x} [{"orcpt": "rfc822;b@x"}]"#);
    assert_eq!(db.text(rows), format!("pipe pending {a}|pipe pending {b}"));
    let other = db.number(&format!("SELECT workqueue_id FROM pepsi.workqueue WHERE workqueue_id <> {id}"));
    claim(&mut db, id);
    claim(&mut db, other);
    let run = worker(PIPE, &config, &format!("{id} 1\n{other} 1\n"));
    assert_eq!(run.output, "ready claims\n0\n1\n", "{}", run.log);
    assert_eq!(db.text(rows), format!("next pending {a}|pipe failed {b}"));
}

// Req: S1, S3
#[test]
fn a_row_that_a_program_fails_is_put_off_refused_or_failed() {
    let mut db = database();
    for (script, options, answer, left, key, value) in [
        ("echo busy >&2; exit 75", &[][..], "0", "pipe paused {a@x}", "temporary_failures", "1"),
        (
            "echo busy >&2; exit 75",
            &[],
            "0",
            "pipe paused {a@x}",
            "last_error",
            "/bin/sh ended with 75: busy",
        ),
        ("exit 1", &[], "0", "pipe paused {a@x}", "last_error", "/bin/sh ended with 1"),
        ("exit 65", &[], "1", "pipe failed {a@x}", "failure_class", "permanent"),
        ("exit 65", &[("BOUNCE_STAGE", "back")], "0", "back pending {a@x}", "failure_class", "permanent"),
        ("exit 1", &[("EXIT_STAGES", "1:ham 2:odd")], "0", "ham pending {a@x}", "last_error", "-"),
        ("exec sleep 600", &[("TIME_LIMIT", "200 ms")], "0", "pipe paused {a@x}", "temporary_failures", "1"),
    ] {
        let id = claimed(&mut db, &["a@x"], b"A: b\r\n", None);
        let run = worker(PIPE, &config(&db, script, options).write(), &format!("{id} 1\n"));
        assert_eq!(run.output, format!("ready claims\n{answer}\n"), "{script}: {}", run.log);
        assert_eq!(row(&mut db, id), left, "{script}");
        let state =
            format!("SELECT coalesce(state ->> '{key}', '-') FROM pepsi.workqueue WHERE workqueue_id = {id}");
        assert_eq!(db.text(&state), value, "{script}");
    }
}

// Req: P8
#[test]
fn what_waits_behind_a_slow_program_is_done_by_another_worker_and_nothing_twice() {
    let mut db = database();
    let (done, go) = (db.folder().join("done"), db.folder().join("go"));
    // The first of them stops until it is let go; the worker that runs it is halted meanwhile, to take the others back.
    let script = format!(
        "echo begun $PEPSI_ID >> {0}; if [ $RECIPIENT = slow@x ]; then while ! [ -e {1} ]; do sleep 0.1; done; fi
         echo ended $PEPSI_ID >> {0}",
        done.display(),
        go.display()
    );
    let config = config(&db, &script, &[("PARALLELISM", "2"), ("QUEUE_LIMIT", "4")]).write();
    let add = "SELECT pepsi.workqueue_inject('ann@x', ARRAY[$1], 'A: b\r\n', NULL, '{}', 'pipe')";
    for number in 0..8 {
        let rcpt = if number == 0 { "slow@x" } else { "quick@x" };
        db.client.query_one(add, &[&rcpt]).expect("a row is added");
    }
    let mut command = pepsi("pepsi-dispatch", &config);
    command.arg("serve");
    let dispatcher = Process::start_quiet(command, db.folder().join("log"));
    let left = "SELECT count(*) FROM pepsi.workqueue WHERE stage = 'pipe'";
    wait_until("the others are done", PATIENCE, || db.number(left) == 1);
    std::fs::write(&go, "").expect("a file");
    wait_until("the slow one is done", PATIENCE, || db.number(left) == 0);
    let mut lines: Vec<String> =
        std::fs::read_to_string(&done).expect("it").lines().map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 16, "{lines:?} {}", dispatcher.log());
    let total = std::fs::read_to_string(&done).expect("it").lines().count();
    assert_eq!(total, 16, "{}", dispatcher.log());
    assert_eq!(db.text("SELECT max(state::text) FROM pepsi.workqueue"), "{}");
}

// Req: D5
#[test]
fn a_program_dies_with_its_worker() {
    let mut db = database();
    let file = db.folder().join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", file.display());
    let id = claimed(&mut db, &["a@x"], b"A: b\r\n", None);
    let mut talk = Talk::start(&db, PIPE, &config(&db, &script, &[]).write());
    talk.send(&format!("{id} 1"));
    wait_until("the program runs", PATIENCE, || file.exists());
    assert!(is_alive(&file));
    talk.process.kill();
    wait_until("it is gone", PATIENCE, || !is_alive(&file));
    assert_eq!(row(&mut db, id), "pipe running {a@x}");
}
