//! The stage program of docs/writing-a-stage.md, run as it stands there: by hand, and by the dispatcher.

use crate::harness::{Config, Database, PATIENCE, Process, database, pepsi, wait_until};
use crate::talk::finish;
use std::path::{Path, PathBuf};
use std::process::Command;

const MAIL: &[u8] = b"Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n";

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/quarantine.py")
}

/// Whether the interpreter that it names has what it imports; if not, that is said.
fn can_run() -> bool {
    let probe = Command::new("/usr/bin/python3").args(["-c", "import psycopg2"]).output();
    let can = probe.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("SKIPPED: /usr/bin/python3 has no psycopg2; scripts/test installs it as root");
    }
    can
}

fn config(db: &Database) -> Config {
    let program = program().display().to_string();
    db.config()
        .stage(
            "init",
            &program,
            &[("NEXT_STAGE", "done"), ("FORBIDDEN_STAGE", "caught"), ("FORBIDDEN", ".exe .scr")],
        )
        .stage("done", "pepsi-stage-discard", &[("FUSION", "no")])
}

/// A message with an attachment of this name, waiting at `init`.
fn add(db: &mut Database, attachment: &str) -> i64 {
    let body = format!(
        "--b\r\nContent-Type: application/octet-stream\r\n\
         Content-Disposition: attachment; filename=\"{attachment}\"\r\n\r\nx\r\n--b--\r\n"
    );
    let add = "SELECT pepsi.workqueue_inject('ann@x', '{bob@x}', $1, $2, '{\"strikes\": 1, \"dsn\": {\"ret\": \"HDRS\"}}')";
    db.client.query_one(add, &[&MAIL, &body.as_bytes()]).expect("a row is added").get(0)
}

fn claim(db: &mut Database, id: i64) {
    db.run(&format!("UPDATE pepsi.workqueue SET status = 'running', claims = 3 WHERE workqueue_id = {id}"));
}

fn row(db: &mut Database, id: i64) -> String {
    db.text(&format!(
        "SELECT coalesce((SELECT concat_ws(' ', stage, status, state) FROM pepsi.workqueue WHERE workqueue_id = {id}), 'gone')"
    ))
}

fn by_hand(config: &Path, input: &str) -> (String, i32, String) {
    let mut command = Command::new(program());
    command.arg("-c").arg(config).arg("worker").env("PEPSI_STAGE", "init");
    let run = finish(command, input);
    (run.output, run.code, run.log)
}

// Req: D4, A4
#[test]
fn the_program_of_the_tutorial_does_one_message_after_the_other() {
    if !can_run() {
        return;
    }
    let mut db = database();
    let config = config(&db).write();
    let ids: Vec<i64> = ["a.pdf", "A.EXE", "x.pdf", "y.exe"].iter().map(|name| add(&mut db, name)).collect();
    ids[..3].iter().for_each(|id| claim(&mut db, *id));
    // The third claim has moved on, the fourth row is nobody's.
    let input = format!("{} 3\n{}\n{} 2\n{} 3\n{}\n", ids[0], ids[1], ids[2], ids[3], ids[3]);
    let (output, code, log) = by_hand(&config, &input);
    assert_eq!((output.as_str(), code), ("ready claims\n0\n0\n0\n0\n1\n", 0), "{log}");
    assert_eq!(row(&mut db, ids[0]), "done pending {\"dsn\": {\"ret\": \"HDRS\"}}");
    assert_eq!(
        row(&mut db, ids[1]),
        "caught pending {\"dsn\": {\"ret\": \"HDRS\"}, \"forbidden\": [\"A.EXE\"]}"
    );
    assert!(row(&mut db, ids[2]).starts_with("init running "));
    assert!(row(&mut db, ids[3]).starts_with("init pending "));
    let (output, code, log) = by_hand(&config, &format!("{} 3\n{}", ids[2], ids[2]));
    assert_eq!((output.as_str(), code), ("ready claims\n0\n", 65), "{log}");
}

// Req: S1, S2
#[test]
fn the_program_of_the_tutorial_puts_off_what_it_cannot_do() {
    if !can_run() {
        return;
    }
    let mut db = database();
    // The database refuses to move it there.
    let config = config(&db).set("stage-init", "NEXT_STAGE", "no1").write();
    db.run("ALTER TABLE pepsi.workqueue ADD CONSTRAINT test_letters CHECK (stage ~ '^[a-z]+$')");
    let id = add(&mut db, "a.pdf");
    claim(&mut db, id);
    let (output, code, log) = by_hand(&config, &format!("{id} 3\n"));
    assert_eq!((output.as_str(), code), ("ready claims\n0\n", 0), "{log}");
    let row_now = row(&mut db, id);
    assert!(
        row_now.starts_with("init paused ") && row_now.contains("\"temporary_failures\": 1"),
        "{row_now}"
    );
    claim(&mut db, id);
    db.run("UPDATE pepsi.workqueue SET received_at = now() - interval '121 h'");
    assert_eq!(by_hand(&config, &format!("{id} 3\n")).0, "ready claims\n1\n");
    let row_now = row(&mut db, id);
    assert!(row_now.starts_with("init failed ") && row_now.contains("retries-exhausted"), "{row_now}");
    let refused = self::config(&db).set("stage-init", "FORBIDDEN", "").write();
    let (output, code, log) = by_hand(&refused, "");
    assert_eq!((output.as_str(), code), ("", 78), "{log}");
    assert!(log.contains("[stage-init] FORBIDDEN is missing"), "{log}");
}

// Req: R1, P3
#[test]
fn the_program_of_the_tutorial_works_for_the_dispatcher() {
    if !can_run() {
        return;
    }
    let mut db = database();
    let config = config(&db).write();
    let mut command = pepsi("pepsi-dispatch", &config);
    command.arg("serve");
    let dispatcher = Process::start_quiet(command, db.folder().join("log"));
    let caught: Vec<i64> =
        (0..20).map(|number| add(&mut db, ["a.pdf", "b.scr"][number % 2])).skip(1).step_by(2).collect();
    let left = "SELECT count(*) FROM pepsi.workqueue WHERE stage <> 'caught'";
    wait_until("all are done or caught", PATIENCE, || db.number(left) == 0);
    let ids = "SELECT string_agg(workqueue_id::text, ' ' ORDER BY workqueue_id) FROM pepsi.workqueue";
    let expected: Vec<String> = caught.iter().map(i64::to_string).collect();
    assert_eq!(db.text(ids), expected.join(" "), "{}", dispatcher.log());
    assert_eq!(db.number("SELECT max(claims) FROM pepsi.workqueue"), 1);
}

/// The blocks of the tutorial in one language.
fn blocks(language: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/writing-a-stage.md");
    let text = std::fs::read_to_string(path).expect("the tutorial");
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_tutorial_shows_what_is_tested() {
    for (language, file) in [("rust", "loop_guard.rs"), ("python", "quarantine.py")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples").join(file);
        let text = std::fs::read_to_string(path).expect("an example");
        assert_eq!(blocks(language), [text], "docs/writing-a-stage.md quotes another {file}");
    }
}

#[test]
fn the_statements_of_the_tutorial_fit_the_schema_and_move_a_row() {
    let mut db = database();
    let statements = blocks("sql");
    for statement in &statements {
        db.client.prepare(statement).unwrap_or_else(|error| panic!("{statement}{error:?}"));
    }
    let [_, advance, pause, fail, finish, rewrite, conclude, _] = statements.as_slice() else {
        panic!("{} statements", statements.len());
    };
    let id = add(&mut db, "a.pdf");
    let merge = serde_json::json!({ "seen": true });
    let (to, claim) = ("next", 3_i64);
    let step = |db: &mut Database, statement: &str, values: &[&(dyn postgres::types::ToSql + Sync)]| {
        self::claim(db, id);
        let lost = [&[&id as _, &2_i64 as _], values].concat();
        assert_eq!(db.client.execute(statement, &lost).expect(statement), 0, "{statement}");
        let held = [&[&id as _, &claim as _], values].concat();
        assert_eq!(db.client.execute(statement, &held).expect(statement), 1, "{statement}");
        row(db, id)
    };
    let state = r#"{"dsn": {"ret": "HDRS"}, "seen": true}"#;
    assert_eq!(step(&mut db, advance, &[&to, &merge]), format!("next pending {state}"));
    assert_eq!(step(&mut db, pause, &[&60_i64, &merge]), format!("next paused {state}"));
    assert_eq!(step(&mut db, fail, &[&merge]), format!("next failed {state}"));
    let (headers, body): (&[u8], &[u8]) = (b"Subject: new\r\n", b"new");
    let rewritten = step(&mut db, rewrite, &[&"third", &headers, &body, &None::<String>, &"new"]);
    assert_eq!(rewritten, format!("third pending {state}"));
    let whole = "SELECT subject || encode(headers || body, 'escape') FROM pepsi.workqueue JOIN pepsi.workqueue_body USING (body_id)";
    assert_eq!(db.text(whole), "newSubject: new\r\nnew");
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue_body"), 1, "the old body is gone");
    self::claim(&mut db, id);
    let groups = serde_json::json!([{ "rcpt_to": ["b@x"], "stage": "other" }]);
    let (recipients, merge) = (vec!["a@x"], &merge);
    let concluded =
        db.client.query_one(conclude, &[&id, &claim, &to, merge, &recipients, &groups]).expect("a row");
    assert!(concluded.get::<_, bool>(0));
    let rows =
        "SELECT string_agg(concat_ws(' ', stage, status, rcpt_to), '|' ORDER BY stage) FROM pepsi.workqueue";
    assert_eq!(db.text(rows), "next pending {a@x}|other pending {b@x}");
    assert_eq!(step(&mut db, finish, &[]), "gone");
}
