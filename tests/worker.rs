//! Workers as processes on a real database: the manual form, refusals to start, fencing, lost databases, stage errors.

mod harness;
#[path = "worker/recipients.rs"]
mod recipients;
#[path = "worker/talk.rs"]
mod talk;

use harness::{Config, Database, PATIENCE, database, pepsi, shared, wait_until};
use std::process::Command;
use talk::{Talk, finish, worker};

const IF: &str = "pepsi-stage-if";
const MAILDIR: &str = "pepsi-stage-relay-to-maildir";

/// init: `if` to drop or relay; drop: discard; relay: Maildirs under the test's folder, where `mail` is not made yet.
fn config(db: &Database) -> Config {
    let maildir = format!("{}/mail/${{local}}", db.folder().display());
    db.config()
        .stage(
            "init",
            IF,
            &[("FIELD", "mail_from"), ("EQUALS", "spam@x"), ("THEN_STAGE", "drop"), ("NEXT_STAGE", "relay")],
        )
        .stage("drop", "pepsi-stage-discard", &[])
        .stage("relay", MAILDIR, &[("MAILDIR", &maildir)])
}

/// A message that was claimed once; its id.
fn claimed(db: &mut Database, mail_from: &str, stage: &str) -> i64 {
    let add = "SELECT pepsi.workqueue_add($1, '{bob@x}', 'Subject: s\r\n', 'body', '{}', $2)";
    let id: i64 = db.client.query_one(add, &[&mail_from, &stage]).expect("a row is added").get(0);
    db.run(&format!("UPDATE pepsi.workqueue SET status = 'running', claims = 1 WHERE workqueue_id = {id}"));
    id
}

/// stage, status and claims of a row.
fn row(db: &mut Database, id: i64) -> String {
    db.text(&format!(
        "SELECT coalesce((SELECT concat_ws(' ', stage, status, claims) FROM pepsi.workqueue WHERE workqueue_id = {id}), 'gone')"
    ))
}

fn state(db: &mut Database, id: i64, key: &str) -> String {
    db.text(&format!(
        "SELECT coalesce((SELECT state ->> '{key}' FROM pepsi.workqueue WHERE workqueue_id = {id}), '-')"
    ))
}

// Req: U1, U2, R1
#[test]
fn a_message_goes_on_in_the_same_pass_where_it_may() {
    let mut db = database();
    let mut try_it = |section: &str, option: &str, value: &str, output: &str, left: &str| {
        let config = config(&db).set(section, option, value).write();
        let spam = claimed(&mut db, "spam@x", "init");
        let run = worker(IF, &config, &format!("{spam} 1\n"));
        let digits = |text: &str| text.chars().filter(|char| !char.is_ascii_digit()).collect::<String>();
        assert_eq!(digits(&run.output), digits(output), "{section} {option}: {}", run.log);
        assert_eq!(row(&mut db, spam), left, "{section} {option}");
    };
    let (one_by_one, left) = ("ready claims\n0\n", "drop pending 1");
    try_it("stage-drop", "FUSION", "yes", "ready claims\n0 [[\"drop\",0]]\n", "gone");
    try_it("stage-drop", "FUSION", "no", one_by_one, left);
    try_it("pepsi", "ALLOW_FUSION", "no", one_by_one, left);
    // Another program, whatever its name.
    try_it("stage-drop", "PROGRAM", "/usr/bin/pepsi-stage-discard", one_by_one, left);
    // This one needs the body.
    try_it("stage-init", "THEN_STAGE", "relay", one_by_one, "relay pending 1");
}

// Req: CLI4, R1, A1
#[test]
fn the_manual_form_takes_one_id_through_one_stage() {
    let mut db = database();
    let config = config(&db).set("pepsi", "ALLOW_FUSION", "no").write();
    let (good, spam) = (claimed(&mut db, "ann@x", "init"), claimed(&mut db, "spam@x", "init"));
    let run = worker(IF, &config, &format!("{good}\n"));
    assert_eq!((run.output.as_str(), run.code, run.log.as_str()), ("ready claims\n0\n", 0, ""));
    assert_eq!(row(&mut db, good), "relay pending 1");
    assert_eq!(worker(IF, &config, &format!("{spam} 1\r\n")).output, "ready claims\n0\n");
    assert_eq!(row(&mut db, spam), "drop pending 1");
    db.run("UPDATE pepsi.workqueue SET status = 'running', claims = 2");
    assert_eq!(worker("pepsi-stage-discard", &config, &format!("{spam}\n")).code, 0);
    assert_eq!(row(&mut db, spam), "gone");
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue_body"), 1);
}

// Req: CLI4, A1
#[test]
fn a_bare_id_is_refused_with_a_clear_line_and_changes_nothing() {
    let mut db = database();
    let config = config(&db).stage("old", "/usr/bin/other", &[]).write();
    for (stage, status, reason) in [
        ("init", "pending", "pending"),
        ("init", "paused", "paused"),
        ("init", "failed", "failed"),
        ("init", "timeout", "timeout"),
        ("drop", "running", "pepsi-stage-discard"),
        ("old", "running", "/usr/bin/other"),
        ("none", "running", "[stage-none]"),
    ] {
        let id = claimed(&mut db, "ann@x", stage);
        db.run(&format!("UPDATE pepsi.workqueue SET status = '{status}' WHERE workqueue_id = {id}"));
        let before = db.text("SELECT string_agg(q::text, ' ' ORDER BY q) FROM pepsi.workqueue q");
        let run = worker(IF, &config, &format!("{id}\n"));
        assert_eq!((run.output.as_str(), run.code), ("ready claims\n1\n", 1), "{stage} {status}");
        assert!(run.log.lines().count() == 1 && run.log.contains(reason), "{}", run.log);
        assert_eq!(db.text("SELECT string_agg(q::text, ' ' ORDER BY q) FROM pepsi.workqueue q"), before);
    }
    let run = worker(IF, &config, "999\nnonsense\n");
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n1\n1\n", 1));
    assert!(run.log.contains("no such message") && run.log.contains("nonsense"), "{}", run.log);
    let run = worker(IF, &config, "");
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n", 0));
}

// Req: CLI4, CLI5
#[test]
fn there_is_no_other_form() {
    let db = database();
    let config = config(&db).write();
    for args in [&["worker", "1"][..], &["1"], &["serve"], &[]] {
        let mut command = pepsi(IF, &config);
        command.args(args);
        let run = finish(command, "");
        assert_eq!((run.output.as_str(), run.code), ("", 64), "{args:?}");
        assert_eq!(run.log.lines().count(), 1, "{}", run.log);
    }
}

// Req: D4
#[test]
fn a_claim_that_moved_on_is_left_alone() {
    let mut db = database();
    let config = config(&db).write();
    let id = claimed(&mut db, "ann@x", "init");
    db.run("UPDATE pepsi.workqueue SET claims = 5");
    let run = worker(IF, &config, &format!("{id} 4\n999 1\n{id} 6\n"));
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n0\n0\n0\n", 0));
    assert_eq!(run.log.matches("claim is gone").count(), 3, "{}", run.log);
    assert_eq!(row(&mut db, id), "init running 5");
}

// Req: D4
#[test]
fn a_claim_lost_while_the_stage_ran_is_fenced_off() {
    let mut db = database();
    std::fs::create_dir(db.folder().join("mail")).expect("a folder");
    let config = config(&db).write();
    for (line, expected) in [("1", "0"), ("", "1")] {
        let id = claimed(&mut db, "ann@x", "relay");
        let mut other = db.connect();
        let mut holding = other.transaction().expect("a transaction");
        holding
            .execute("UPDATE pepsi.workqueue SET claims = 2 WHERE workqueue_id = $1", &[&id])
            .expect("a row");
        let mut talk = Talk::start(&db, MAILDIR, &config);
        talk.send(format!("{id} {line}").trim_end());
        wait_for_lock(&mut db);
        holding.commit().expect("the lock goes");
        assert_eq!(talk.answer(), expected);
        talk.process.wait_for_log("claim is gone", PATIENCE);
        assert_eq!(row(&mut db, id), "relay running 2");
    }
}

/// Awaits a worker that waits for a row of ours: its stage has run, and it commits.
fn wait_for_lock(db: &mut Database) {
    wait_until("a worker waits for a lock", PATIENCE, || {
        db.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
            > 0
    });
}

// Req: A1, A3
#[test]
fn a_message_costs_one_select_and_one_write() {
    let mut db = database();
    let name = db.name.clone();
    shared().admin(&format!("ALTER DATABASE {name} SET log_statement = 'all'"));
    let config = config(&db).write();
    let ids: Vec<i64> = (0..3).map(|_| claimed(&mut db, "ann@x", "init")).collect();
    let mut talk = Talk::start(&db, IF, &config);
    let pid = db.number(
        "SELECT pid::bigint FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pepsi-stage%'",
    );
    for id in ids {
        assert_eq!(talk.ask(&format!("{id} 1")), "0");
    }
    let log = shared().log();
    let mine = log.lines().filter(|line| line.contains(&format!("[{pid}]")) && line.contains("execute"));
    // A statement's own comment stands on its first line.
    let count = |part: &str| mine.clone().filter(|line| line.contains(part)).count();
    assert_eq!(
        (count("Rows, whatever their status"), count("A claimed row moves to a stage")),
        (3, 3),
        "{log}"
    );
    // Two more at the start: the schema and the overlay.
    assert_eq!(mine.clone().count(), 6 + 2, "{:?}", mine.collect::<Vec<_>>());
}

// Req: A7
#[test]
fn synchronous_commit_is_off_unless_it_is_wanted() {
    let mut db = database();
    db.run(
        "CREATE TABLE seen (value text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO public.seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
         CREATE TRIGGER see BEFORE UPDATE ON pepsi.workqueue FOR EACH ROW WHEN (NEW.status = 'pending')
         EXECUTE FUNCTION see()",
    );
    for (option, expected) in [("no", "off"), ("yes", "on")] {
        let config = config(&db).set("pepsi-postgres", "WORKER_SYNCHRONOUS_COMMIT", option).write();
        let id = claimed(&mut db, "ann@x", "init");
        assert_eq!(worker(IF, &config, &format!("{id} 1\n")).code, 0);
        assert_eq!(db.text("DELETE FROM seen RETURNING value"), expected);
    }
}

// Req: S4, CLI5, E6, R1
#[test]
fn a_worker_that_cannot_run_says_why_and_exits_78() {
    let mut db = database();
    let refuse = |config: &Config, stage: &str, words: &[&str]| {
        let mut command = pepsi(IF, &config.write());
        command.arg("worker");
        if !stage.is_empty() {
            command.env("PEPSI_STAGE", stage);
        }
        let run = finish(command, "1\n");
        assert_eq!((run.output.as_str(), run.code), ("", 78), "{words:?}: {}", run.log);
        assert_eq!(
            run.log.lines().filter(|line| line.starts_with("error")).count(),
            words.len(),
            "{}",
            run.log
        );
        for word in words {
            assert!(run.log.contains(word), "{word}: {}", run.log);
        }
    };
    let two_bad = config(&db).set("stage-init", "THEN_STAGE", "").stage(
        "second",
        IF,
        &[("FIELD", "size"), ("LESS", "x"), ("NEXT_STAGE", "a"), ("THEN_STAGE", "b")],
    );
    refuse(&two_bad, "", &["[stage-init] THEN_STAGE", "[stage-second] LESS"]);
    refuse(&two_bad, "second", &["[stage-second] LESS"]);
    refuse(&config(&db), "drop", &["pepsi-stage-discard"]);
    refuse(&config(&db), "nowhere", &["[stage-nowhere]"]);
    refuse(&config(&db).set("stage-drop", "PARALLELISM", "many"), "init", &["PARALLELISM"]);
    refuse(&config(&db).set("pepsi-postgres", "WORKER_SYNCHRONOUS_COMMIT", "perhaps"), "", &["SYNCHRONOUS"]);
    refuse(&config(&db).set("pepsi-postgres", "CONFIG", "mysql:///x"), "", &["CONFIG"]);
    let empty = shared().empty_database();
    refuse(&config(&empty), "", &["pepsi-setup schema"]);
    db.run("UPDATE pepsi.schema_version SET checksum = 'other'");
    refuse(&config(&db), "", &["schema"]);
    let mut command = pepsi(IF, &db.folder().join("missing.conf"));
    command.arg("worker");
    let run = finish(command, "");
    assert!(run.code == 78 && run.log.contains("missing.conf"), "{}", run.log);
}

// Req: C1, S4
#[test]
fn the_overlay_is_laid_over_the_file() {
    let mut db = database();
    let config = config(&db).set("stage-init", "NONSENSE", "x").write();
    db.run(
        "INSERT INTO pepsi.config_override (scope, section, option, value) VALUES
         ('global', 'Stage-Init', 'next_stage', 'elsewhere'),
         ('global', 'pepsi-postgres', 'CONFIG', 'postgres:///nowhere')",
    );
    let id = claimed(&mut db, "ann@x", "init");
    let run = worker(IF, &config, &format!("{id}\n"));
    assert_eq!(run.output, "ready claims\n0\n", "{}", run.log);
    assert_eq!(row(&mut db, id), "elsewhere pending 1");
    // An option that nobody knows is a warning.
    assert!(run.log.starts_with("warning") && run.log.contains("NONSENSE"), "{}", run.log);
    db.run(
        "UPDATE pepsi.config_override SET option = 'FIELD', value = 'colour' WHERE section = 'Stage-Init'",
    );
    let run = worker(IF, &config, &format!("{id}\n"));
    assert!(
        run.code == 78 && run.log.contains("config_override") && run.log.contains("colour"),
        "{}",
        run.log
    );
}

// Req: L1, O1, E5, R1
#[test]
fn a_database_that_is_away_or_full_at_the_start_is_74_or_75() {
    let db = database();
    let nowhere = db.url.replace("host=", "host=/nonexistent");
    let run = worker(IF, &config(&db).set("pepsi-postgres", "CONFIG", &nowhere).write(), "1\n");
    assert_eq!((run.output.as_str(), run.code), ("", 74), "{}", run.log);
    let role = format!("limited_{}", db.name);
    shared().admin(&format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 0"));
    let limited = db.url.replace("//postgres@", &format!("//{role}@"));
    assert_ne!(limited, db.url);
    let run = worker(IF, &config(&db).set("pepsi-postgres", "CONFIG", &limited).write(), "1\n");
    assert_eq!((run.output.as_str(), run.code), ("", 75), "{}", run.log);
}

/// Ends the connections of this database's workers.
fn terminate_workers(db: &mut Database) {
    let ended = db.number(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name LIKE 'pepsi-stage%'",
    );
    assert!(ended > 0);
    wait_until("the backends are gone", PATIENCE, || {
        db.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pepsi-stage%'")
            == 0
    });
}

// Req: L1
#[test]
fn a_lost_connection_is_made_anew() {
    let mut db = database();
    let config = config(&db).write();
    let ids: Vec<i64> = (0..3).map(|_| claimed(&mut db, "ann@x", "init")).collect();
    let mut talk = Talk::start(&db, IF, &config);
    terminate_workers(&mut db);
    assert_eq!(talk.ask(&format!("{} 1", ids[0])), "0", "a worker that was idle loses nothing");
    assert_eq!(row(&mut db, ids[0]), "relay pending 1");

    let mut other = db.connect();
    let mut holding = other.transaction().expect("a transaction");
    holding
        .execute("SELECT FROM pepsi.workqueue WHERE workqueue_id = $1 FOR UPDATE", &[&ids[1]])
        .expect("a row");
    talk.send(&format!("{} 1", ids[1]));
    wait_for_lock(&mut db);
    terminate_workers(&mut db);
    assert_eq!(talk.answer(), "74", "in the middle of a commit");
    drop(holding);
    assert_eq!(row(&mut db, ids[1]), "init running 1");
    assert_eq!(talk.ask(&format!("{} 1", ids[2])), "0");
    talk.end_input();
    assert_eq!(talk.process.wait(PATIENCE), 74, "the last answer that was not 0");
}

// Req: L1, R3
#[test]
fn a_database_that_does_not_come_back_ends_the_worker_unanswered() {
    let mut db = database();
    let name = db.name.clone();
    let config = config(&db).write();
    let ids: Vec<i64> = (0..2).map(|_| claimed(&mut db, "ann@x", "init")).collect();
    let mut talk = Talk::start(&db, IF, &config);
    shared().admin(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"));
    terminate_workers(&mut db);
    talk.send(&format!("{} 1\n{} 1", ids[0], ids[1]));
    assert_eq!(talk.answer(), "");
    assert_eq!(talk.process.wait(PATIENCE), 74);
    for id in ids {
        assert_eq!(row(&mut db, id), "init running 1");
    }
}

// Req: S1
#[test]
fn a_host_fault_pauses_at_the_stage_longer_each_time() {
    let mut db = database();
    let config = config(&db).write();
    let id = claimed(&mut db, "ann@x", "relay");
    for (failures, seconds) in [(1, 60), (2, 120), (3, 240)] {
        let run = worker(MAILDIR, &config, &format!("{id} {failures}\n"));
        assert_eq!((run.output.as_str(), run.code), ("ready claims\n0\n", 0));
        assert!(run.log.starts_with("warning") && run.log.contains("[relay]"), "{}", run.log);
        assert!(state(&mut db, id, "last_error").contains("/mail: No such file"));
        assert_eq!(state(&mut db, id, "temporary_failures"), failures.to_string());
        let due = db.number("SELECT round(extract(epoch FROM timeout - now()))::bigint FROM pepsi.workqueue");
        assert!((seconds - 10..=seconds * 5 / 4).contains(&due), "{due}");
        assert_eq!(row(&mut db, id), format!("relay paused {failures}"));
        db.run("UPDATE pepsi.workqueue SET status = 'running', claims = claims + 1");
    }
    std::fs::create_dir(db.folder().join("mail")).expect("a folder");
    assert_eq!(worker(MAILDIR, &config, &format!("{id} 4\n")).code, 0);
    assert_eq!(row(&mut db, id), "gone");
}

// Req: S2, S5, E2
#[test]
fn retries_end_with_the_lifetime() {
    let mut db = database();
    for (bounce, code, expected) in [
        ("bounces", 0, "bounces pending 1"),
        ("", 1, "relay failed 1"),
        // A stage that bounced to itself would never be done with the message.
        ("relay", 1, "relay failed 1"),
    ] {
        let config = config(&db)
            .set("stage-relay", "BOUNCE_STAGE", bounce)
            .set("stage-relay", "MAX_LIFETIME", "1 h")
            .write();
        let id = claimed(&mut db, "ann@x", "relay");
        db.run(&format!(
            "UPDATE pepsi.workqueue SET received_at = now() - interval '2 h',
                 state = '{{\"temporary_failures\": 5, \"strikes\": 1}}' WHERE workqueue_id = {id}"
        ));
        let run = worker(MAILDIR, &config, &format!("{id} 1\n"));
        assert_eq!(run.code, code, "{}", run.log);
        assert_eq!(row(&mut db, id), expected);
        assert_eq!(state(&mut db, id, "failure_class"), "retries-exhausted");
        assert_eq!(state(&mut db, id, "failed_stage"), "relay");
        assert!(state(&mut db, id, "last_error").contains("/mail"));
        assert!(!state(&mut db, id, "bounce").contains("/mail"));
        if code == 0 {
            assert_eq!(state(&mut db, id, "temporary_failures"), "-");
            assert_eq!(state(&mut db, id, "strikes"), "-");
        }
    }
}

// Req: S3, E1
#[test]
fn a_permanent_error_fails_at_once_and_the_worker_goes_on() {
    let mut db = database();
    let config = config(&db).set("stage-relay", "BOUNCE_STAGE", "bounces").write();
    let (bad, good) = (claimed(&mut db, "ann@x", "relay"), claimed(&mut db, "ann@x", "relay"));
    db.run(&format!("UPDATE pepsi.workqueue SET rcpt_to = '{{}}' WHERE workqueue_id = {bad}"));
    std::fs::create_dir(db.folder().join("mail")).expect("a folder");
    let run = worker(MAILDIR, &config, &format!("{bad} 1\n{good} 1\n"));
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n1\n0\n", 1), "{}", run.log);
    assert_eq!((row(&mut db, bad), row(&mut db, good)), ("relay failed 1".into(), "gone".into()));
    assert_eq!(state(&mut db, bad, "failure_class"), "permanent");
    assert_eq!(state(&mut db, bad, "failed_stage"), "relay");
}

// Req: S1, L1
#[test]
fn a_write_that_the_database_refuses_leaves_no_row_running_for_good() {
    let mut db = database();
    let config = config(&db).write();
    let refuse = |db: &mut Database, when: &str| {
        db.run(&format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'not this one'; END $$;
             DROP TRIGGER IF EXISTS refuse ON pepsi.workqueue;
             CREATE TRIGGER refuse BEFORE UPDATE ON pepsi.workqueue FOR EACH ROW WHEN ({when})
             EXECUTE FUNCTION refuse()"
        ));
    };
    let id = claimed(&mut db, "ann@x", "init");
    refuse(&mut db, "NEW.stage = 'relay'");
    let run = worker(IF, &config, &format!("{id} 1\n"));
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n0\n", 0), "{}", run.log);
    assert_eq!(row(&mut db, id), "init paused 1");
    assert!(state(&mut db, id, "last_error").contains("not this one"));

    db.run("UPDATE pepsi.workqueue SET status = 'running'");
    refuse(&mut db, "true");
    let run = worker(IF, &config, &format!("{id} 1\n"));
    // The dispatcher pauses a row that was answered 74.
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n74\n", 74), "{}", run.log);
    assert_eq!(row(&mut db, id), "init running 1");
}

// Req: R4, R1
#[test]
fn standard_output_holds_the_protocol_alone() {
    let mut db = database();
    let config = config(&db).write();
    let ids: Vec<i64> = (0..50).map(|_| claimed(&mut db, "ann@x", "init")).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pepsi"));
    command.arg(IF).arg("-v").arg("-c").arg(&config).arg("worker").env("PEPSI_STAGE", "init");
    let input: String = ids.iter().map(|id| format!("{id} 1\n")).collect();
    let run = finish(command, &input);
    assert_eq!(run.output, format!("ready claims\n{}", "0\n".repeat(50)));
    assert_eq!(run.log.matches("debug").count(), 50);
    assert_eq!(
        db.number("SELECT count(*) FROM pepsi.workqueue WHERE stage = 'relay' AND status = 'pending'"),
        50
    );
}

#[test]
fn a_line_without_its_end_is_not_acted_upon() {
    let mut db = database();
    let config = config(&db).write();
    let id = claimed(&mut db, "ann@x", "init");
    let run = worker(IF, &config, &format!("{id}"));
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n", 65), "{}", run.log);
    assert_eq!(row(&mut db, id), "init running 1");
}
