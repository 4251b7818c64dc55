//! What each fault of the database is called: the class that the rest of Pepsi acts on.

use super::harness::{self, Options, PATIENCE, Postgres, Stop, holds_within};
use super::sql::ops::{Admission, Filter};
use super::sql::queue::Held;
use super::sql::row::Load;
use super::sql::{Db, Error, Purpose};
use super::{WORKER, admit, claim, claim_one, open, want};
use std::time::{Duration, Instant};

// Req: L1
#[test]
fn a_backend_that_was_ended_and_a_server_that_went_are_a_lost_connection() {
    let server = Postgres::start(Options::default());
    let mut database = server.database();
    let mut db = open(&database, WORKER);
    let id = admit(&mut db, "a");
    database
        .run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pepsi-test'");
    let lost = |result: Result<_, Error>| match result {
        Err(Error::Lost(text)) => assert!(text.contains("load messages") && !text.contains('\n'), "{text}"),
        other => panic!("{other:?}"),
    };
    lost(db.load(id, Load::Metadata));
    lost(db.load(id, Load::Metadata));
    for how in [Stop::Fast, Stop::Immediate] {
        let mut db = open(&database, WORKER);
        assert!(db.load(id, Load::Metadata).is_ok());
        server.stop(how);
        lost(db.load(id, Load::Metadata));
        let refused = Db::connect(&database.url, "pepsi-test", WORKER).err();
        assert!(matches!(refused, Some(Error::Lost(_))), "{refused:?}");
        server.start_again();
    }
    assert!(open(&database, WORKER).load(id, Load::Metadata).is_ok_and(|row| row.is_some()));
}

// Req: O1
#[test]
fn too_many_connections_are_an_overload() {
    let settings = [("max_connections", "5"), ("superuser_reserved_connections", "0")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let server = Postgres::start(Options { settings, ..Options::default() });
    let database = server.database();
    let mut others = Vec::new();
    let found = holds_within(PATIENCE, || match Db::connect(&database.url, "pepsi-test", WORKER) {
        Ok(db) => {
            others.push(db);
            false
        }
        Err(Error::Overloaded(text)) => text.contains("53300"),
        Err(other) => panic!("{other:?}"),
    });
    assert!(found && others.len() == 4, "{}", others.len());
}

/// A trigger stands in for a server in each of these states, or for a pooler before it.
// Req: L1, O1, K3
#[test]
fn each_code_of_the_server_has_its_class() {
    let mut database = harness::database();
    let mut db = open(&database, WORKER);
    let class = |error: &Error| match error {
        Error::Lost(_) => "lost",
        Error::Overloaded(_) => "overloaded",
        Error::Conflict(_) => "conflict",
        Error::Refused(_) => "refused",
        Error::Setup(_) => "setup",
        Error::Schema(_) => "schema",
    };
    database.run(
        "CREATE FUNCTION pepsi.fault() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN RAISE ''no'' USING ERRCODE = (SELECT code FROM pepsi.fault); END';
         CREATE TABLE pepsi.fault (code text);
         CREATE TRIGGER fault BEFORE INSERT ON pepsi.workqueue FOR EACH ROW EXECUTE FUNCTION pepsi.fault()",
    );
    for (expected, codes) in [
        ("lost", &["08000", "08001", "08003", "08006", "08P01", "57P01", "57P02", "57P03"][..]),
        ("overloaded", &["53300"]),
        ("conflict", &["40001", "40P01", "55P03", "57014"]),
        ("setup", &["25006", "42501"]),
        ("schema", &["42P01", "42703", "42883"]),
        ("refused", &["P0001", "23514", "53100", "53200", "XX000", "57000"]),
    ] {
        for code in codes {
            database.run(&format!("DELETE FROM pepsi.fault; INSERT INTO pepsi.fault VALUES ('{code}')"));
            let message = Admission {
                mail_from: "",
                rcpt_to: &[],
                headers: b"",
                body: None,
                state: serde_json::json!({}),
                stage: "a",
            };
            let error = db.admit(&message).expect_err(code);
            assert_eq!(class(&error), expected, "{code}: {error}");
            assert!(error.to_string().contains(code), "{error}");
        }
    }
}

// Req: L1
#[test]
fn a_server_that_stands_still_does_not_hold_up_the_poll_for_ever() {
    let server = Postgres::start(Options::default());
    let database = server.database();
    let mut db = open(&database, Purpose::Dispatcher);
    assert_eq!(db.poll_notifications(), Ok(vec![]));
    server.freeze();
    let begun = Instant::now();
    let polled = db.poll_notifications();
    server.thaw();
    assert!(matches!(polled, Err(Error::Lost(_))), "{polled:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn what_the_server_refuses_names_the_constraint_and_no_address() {
    let database = harness::database();
    let mut db = open(&database, WORKER);
    let rcpt_to = ["secret@example.org".to_owned()];
    let stage = "x".repeat(201);
    let mut message = Admission {
        mail_from: "secret@example.org",
        rcpt_to: &rcpt_to,
        headers: b"",
        body: None,
        state: serde_json::json!([]),
        stage: &stage,
    };
    let mut refused = |message: &Admission<'_>, parts: &[&str]| match db.admit(message) {
        Err(Error::Refused(text)) => {
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert!(!text.contains("secret") && !text.contains('\n'), "{text}");
        }
        other => panic!("{other:?}"),
    };
    refused(&message, &["store the message", "23514"]);
    message.stage = "a";
    refused(&message, &["workqueue_state_check"]);
    message.state = serde_json::json!({});
    message.mail_from = "a\0b";
    refused(&message, &["22021"]);
}

// Req: CLI3
#[test]
fn a_schema_that_went_and_a_right_that_was_taken_need_a_person() {
    let mut database = harness::database();
    let mut db = open(&database, Purpose::Dispatcher);
    assert_eq!(db.check_schema(), Ok(()));
    assert_eq!(claim(&mut db, &[want("a", 1)]).rows, []);
    database.run("CREATE ROLE limited LOGIN; GRANT USAGE ON SCHEMA pepsi TO limited; GRANT SELECT ON pepsi.schema_version TO limited");
    let limited = database.url.replace("postgres@", "limited@");
    let mut other = Db::connect(&limited, "pepsi-test", Purpose::Tool).expect("it may connect");
    assert_eq!(other.check_schema(), Ok(()));
    assert!(matches!(other.list(&Filter { limit: 1, ..Filter::default() }), Err(Error::Setup(_))));
    database.run("DROP SCHEMA pepsi CASCADE");
    let gone = db.claim(&[want("a", 1)], &[], false, false);
    assert!(matches!(&gone, Err(Error::Schema(text)) if text.contains("pepsi-setup schema")), "{gone:?}");
    assert!(matches!(db.check_schema(), Err(Error::Schema(_))));
}

#[test]
fn a_statement_that_waits_too_long_for_a_lock_is_a_conflict() {
    let mut database = harness::database();
    let mut db = open(&database, Purpose::Dispatcher);
    admit(&mut db, "a");
    let held = claim(&mut db, &[want("a", 1)]).rows[0].held;
    database.run("BEGIN; LOCK TABLE pepsi.workqueue IN SHARE MODE");
    let begun = Instant::now();
    assert!(matches!(db.requeue(&[held]), Err(Error::Conflict(_))));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    database.run("ROLLBACK");
    assert_eq!(db.requeue(&[held]), Ok(1));
}

/// A claim is committed without waiting for the disk; what was handed out under its number is still told apart.
// Req: D4
#[test]
fn a_claim_that_a_crash_forgot_is_never_given_out_again() {
    let settings =
        [("wal_writer_delay", "10s"), ("wal_writer_flush_after", "0"), ("checkpoint_timeout", "1h")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let server = Postgres::start(Options { fsync: false, settings });
    let mut database = server.database();
    let mut db = open(&database, Purpose::Dispatcher);
    let mut admission = open(&database, Purpose::Admission);
    let (forgotten, untouched) = (admit(&mut admission, "init"), admit(&mut admission, "other"));
    let first = claim_one(&mut db, "init");
    assert_eq!(first, Held { id: forgotten, claim: 1 });
    server.restart(Stop::Immediate);
    database.client = database.connect();
    let claims = format!("SELECT claims FROM pepsi.workqueue WHERE workqueue_id = {forgotten}");
    assert_eq!(database.number(&claims), 0, "the crash forgot the claim, or this test shows nothing");
    let mut db = open(&database, Purpose::Dispatcher);
    assert_eq!(db.reconcile(&[first]), Ok(vec![]));
    assert_eq!(claim_one(&mut db, "init").claim, 2);
    assert_eq!(claim_one(&mut db, "other"), Held { id: untouched, claim: 1 });
}
