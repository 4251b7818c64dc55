//! The functions and triggers of procedures.sql on a real PostgreSQL: admission, repair, fan-out, bodies.

mod harness;

use harness::{Database, PATIENCE, wait_until};
use serde_json::{Value, json};

/// Adds a message and claims it as the dispatcher would: id, and the claim that fences it.
fn claimed(db: &mut Database, recipients: &[&str]) -> (i64, i64) {
    let add = "SELECT pepsi.workqueue_add('s@example.org', $1, 'Subject: x\r\n', 'body', '{\"strikes\": 1, \"dsn\": {}}')";
    let id: i64 = db.client.query_one(add, &[&recipients]).expect("a message is stored").get(0);
    db.run(&format!(
        "UPDATE pepsi.workqueue SET status = 'running', claims = claims + 1 WHERE workqueue_id = {id}"
    ));
    (id, 1)
}

fn bodies(db: &mut Database) -> i64 {
    db.number("SELECT count(*) FROM pepsi.workqueue_body")
}

fn one(db: &mut Database, id: i64) -> Value {
    db.client
        .query_one("SELECT to_jsonb(q) FROM pepsi.workqueue q WHERE workqueue_id = $1", &[&id])
        .unwrap_or_else(|error| panic!("row {id}: {error}"))
        .get(0)
}

fn split(db: &mut Database, id: i64, claim: i64, keep: &[&str], groups: Value) -> Option<Vec<i64>> {
    let call = "SELECT pepsi.workqueue_split($1, $2, $3, $4)";
    db.client.query_one(call, &[&id, &claim, &keep, &groups]).expect("a split").get(0)
}

#[test]
fn from_and_subject_are_found_in_any_header() {
    let mut db = harness::database();
    let long = format!("Subject: {}\r\n", "é".repeat(3000));
    let many_nul = [b"From: ".as_slice(), &[0; 5000], b"x\r\n"].concat();
    let far = format!("X: {}\r\nFrom: far\r\n", "y".repeat(300_000));
    let cases: &[(&[u8], Option<&str>, Option<&str>)] = &[
        (b"", None, None),
        (b"From: a <a@b>\r\nSubject: x y\r\n", Some("a <a@b>"), Some("x y")),
        (b"X: 1\nfrom : a\nSUBJECT:\tb\n", Some("a"), Some("b")),
        (b"Subject: one\r\n two\r\n\tthree\r\nFrom:a", Some("a"), Some("one two\tthree")),
        (b"X-From: no\r\nX:\r\n Subject: no\r\n", None, None),
        (b"From: first\r\nFrom: second\r\n", Some("first"), None),
        (b"From:\r\nSubject:", Some(""), Some("")),
        ("Subject: grün\r\n".as_bytes(), None, Some("grün")),
        (b"Subject: gr\xfcn \\134\r\n", None, Some("grün \\134")),
        (b"Subject: a\0b\\000\\\0c\r\n", None, Some("ab\\000\\c")),
        (b"Subject: a\rb\r\n", None, Some("a\rb")),
        (&many_nul, Some(""), None),
        (far.as_bytes(), None, None),
        (b"\xff\xfe\0\0\r\r\n\n\n", None, None),
    ];
    for (headers, from, subject) in cases {
        let add = "SELECT pepsi.workqueue_add('', '{}', $1, NULL)";
        let id: i64 = db
            .client
            .query_one(add, &[headers])
            .unwrap_or_else(|error| panic!("{headers:?}: {error:?}"))
            .get(0);
        let row = one(&mut db, id);
        assert_eq!((row["header_from"].as_str(), row["subject"].as_str()), (*from, *subject), "{headers:?}");
    }
    let id: i64 = db
        .client
        .query_one("SELECT pepsi.workqueue_add('', '{}', $1, NULL)", &[&long.as_bytes()])
        .unwrap()
        .get(0);
    let row = one(&mut db, id);
    let subject = row["subject"].as_str().unwrap();
    assert!(subject.chars().all(|c| c == 'é') && (400..=512).contains(&subject.chars().count()), "{subject}");
}

// Req: A8
#[test]
fn headers_and_body_come_back_byte_for_byte() {
    let mut db = harness::database();
    let every: Vec<u8> = (0..=255u8).cycle().take(70_000).collect();
    for (headers, body) in
        [(every.as_slice(), Some(every.as_slice())), (b"", Some(b"".as_slice())), (b"\0", None)]
    {
        let add = "SELECT pepsi.workqueue_add('', '{a@b}', $1, $2)";
        let id: i64 = db.client.query_one(add, &[&headers, &body]).expect("any bytes").get(0);
        let back = "SELECT headers, body FROM pepsi.workqueue LEFT JOIN pepsi.workqueue_body USING (body_id) WHERE workqueue_id = $1";
        let row = db.client.query_one(back, &[&id]).expect("the row");
        assert_eq!(row.get::<_, Vec<u8>>(0), headers);
        assert_eq!(row.get::<_, Option<Vec<u8>>>(1).as_deref(), body);
    }
}

// Req: W5
// Req: W6
#[test]
fn inject_and_resume_notify_once_and_add_does_not() {
    let mut db = harness::database();
    let mut listener = db.connect();
    listener.batch_execute("LISTEN workqueue").expect("LISTEN");
    let heard = |listener: &mut postgres::Client| {
        listener.simple_query("").expect("an empty query");
        let mut payloads = Vec::new();
        while let Some(one) =
            fallible_iterator::FallibleIterator::next(&mut listener.notifications().iter()).unwrap()
        {
            payloads.push(one.payload().to_owned());
        }
        payloads
    };
    let add = "SELECT pepsi.workqueue_add('', '{a@b}', '', NULL, '{}', 'x')";
    let id = db.number(add);
    assert_eq!(heard(&mut listener), Vec::<String>::new());
    db.run("SELECT pepsi.workqueue_inject('', '{a@b}', '', NULL), pepsi.workqueue_inject('', '{a@b}', '', 'b', '{}', 'y')");
    assert_eq!(heard(&mut listener), [""]);
    assert_eq!(
        db.text("SELECT string_agg(stage, ' ' ORDER BY workqueue_id) FROM pepsi.workqueue"),
        "x init y"
    );
    db.run(&format!("UPDATE pepsi.workqueue SET status = 'failed' WHERE workqueue_id = {id}"));
    db.run(&format!("SELECT pepsi.workqueue_resume({id})"));
    assert_eq!(heard(&mut listener), [""]);
}

// Req: E2
#[test]
fn resume_takes_what_stands_still_and_forgets_its_failures() {
    let mut db = harness::database();
    for (status, expected) in
        [("paused", true), ("failed", true), ("timeout", true), ("pending", false), ("running", false)]
    {
        let state = r#"{"strikes": 2, "temporary_failures": 9, "last_error": "x", "held": true, "dispatch_error": "x",
            "failure_class": "crashed", "failed_stage": "s", "dsn": {"ret": "full"}}"#;
        let id = db.number(&format!("SELECT pepsi.workqueue_add('', '{{a@b}}', '', NULL, '{state}')"));
        db.run(&format!(
            "UPDATE pepsi.workqueue SET status = '{status}', timeout = now() WHERE workqueue_id = {id}"
        ));
        let resumed: bool =
            db.client.query_one("SELECT pepsi.workqueue_resume($1)", &[&id]).expect("a verdict").get(0);
        assert_eq!(resumed, expected, "{status}");
        let row = one(&mut db, id);
        if expected {
            assert_eq!((&row["status"], &row["timeout"]), (&json!("pending"), &Value::Null));
            assert_eq!(row["state"], json!({"dsn": {"ret": "full"}}));
        } else {
            assert_eq!(row["status"], status);
            assert_eq!(row["state"]["strikes"], 2);
        }
    }
    assert!(
        !db.client.query_one("SELECT pepsi.workqueue_resume(0)", &[]).expect("a verdict").get::<_, bool>(0)
    );
}

// Req: A5
// Req: D4
#[test]
fn a_split_makes_rows_that_share_the_body_and_keep_the_arrival() {
    let mut db = harness::database();
    let (id, claim) = claimed(&mut db, &["a@x", "b@x", "c@x", "d@x"]);
    db.run("UPDATE pepsi.workqueue SET received_at = now() - interval '1 day'");
    let groups = json!([
        {"rcpt_to": ["b@x"]},
        {"rcpt_to": ["c@x"], "status": "paused", "pause_us": 60_000_000, "state": {"attempts": 1}, "stage": "other"},
        {"rcpt_to": ["d@x"], "status": "failed", "mail_from": "new@x", "token": "t"},
    ]);
    assert_eq!(split(&mut db, id, claim + 1, &["a@x"], groups.clone()), None, "another claim");
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue"), 1);
    let ids = split(&mut db, id, claim, &["a@x"], groups).expect("our claim");
    let [b, c, d] = ids[..] else { panic!("{ids:?}") };
    assert_eq!(bodies(&mut db), 1);
    let own = one(&mut db, id);
    assert_eq!((&own["rcpt_to"], &own["status"]), (&json!(["a@x"]), &json!("running")));
    let (b, c, d) = (one(&mut db, b), one(&mut db, c), one(&mut db, d));
    for row in [&b, &c, &d] {
        for same in ["body_id", "headers", "subject", "received_at"] {
            assert_eq!(row[same], own[same], "{same}");
        }
        assert_eq!(row["claims"], 0);
    }
    assert_eq!(
        (&b["rcpt_to"], &b["status"], &b["stage"]),
        (&json!(["b@x"]), &json!("pending"), &json!("init"))
    );
    assert_eq!(b["state"], json!({"strikes": 1, "dsn": {}}));
    assert_eq!((&c["status"], &c["stage"]), (&json!("paused"), &json!("other")));
    assert_eq!(c["state"], json!({"dsn": {}, "attempts": 1}), "another stage starts without strikes");
    assert_eq!(
        (&d["status"], &d["mail_from"], &d["token"]),
        (&json!("failed"), &json!("new@x"), &json!("t"))
    );
    assert_eq!(d["timeout"], Value::Null);
    let due = format!(
        "SELECT count(*) FROM pepsi.workqueue WHERE timeout BETWEEN now() AND now() + interval '61 s'
        AND workqueue_id = {}",
        c["workqueue_id"]
    );
    assert_eq!(db.number(&due), 1);
}

// Req: W3
#[test]
fn no_function_makes_a_row_running() {
    let mut db = harness::database();
    let (id, claim) = claimed(&mut db, &["a@x", "b@x"]);
    let groups = json!([{"rcpt_to": ["b@x"], "status": "running"}]);
    let refused =
        db.client.query_one("SELECT pepsi.workqueue_split($1, $2, '{}', $3)", &[&id, &claim, &groups]);
    assert_eq!(refused.unwrap_err().code().map(|code| code.code()), Some("23502"));
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue"), 1);
}

// Req: A6
// Req: D4
#[test]
fn clones_come_once_and_only_under_the_claim() {
    let mut db = harness::database();
    let (id, claim) = claimed(&mut db, &["a@x", "b@x"]);
    let clones = json!([{"rcpt_to": ["s@example.org"], "mail_from": "", "stage": "bounce", "token": "dsn-1", "fresh": true,
        "state": {"bounce": {"kind": "delay"}}}]);
    db.run("UPDATE pepsi.workqueue SET received_at = now() - interval '1 day'");
    let pause = "SELECT pepsi.workqueue_pause($1, $2, '{\"attempts\": 3}', 1000000, '{b@x}', $3)";
    let call = |db: &mut Database, claim: i64| -> bool {
        db.client.query_one(pause, &[&id, &claim, &clones]).expect("a verdict").get(0)
    };
    assert!(!call(&mut db, claim + 1));
    assert!(call(&mut db, claim));
    assert!(!call(&mut db, claim), "it is paused now");
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue"), 2);
    let own = one(&mut db, id);
    assert_eq!((&own["status"], &own["rcpt_to"]), (&json!("paused"), &json!(["b@x"])));
    assert_eq!(own["state"]["attempts"], 3);
    let fresh = "SELECT count(*) FROM pepsi.workqueue WHERE token = 'dsn-1' AND received_at > now() - interval '1 hour'
        AND stage = 'bounce' AND mail_from = '' AND state -> 'bounce' ->> 'kind' = 'delay'";
    assert_eq!(db.number(fresh), 1);
    // Claimed again, it would make the same clone again.
    db.run(&format!("UPDATE pepsi.workqueue SET status = 'running', claims = 2 WHERE workqueue_id = {id}"));
    let finish = "SELECT pepsi.workqueue_finish_with_clones($1, $2, $3)";
    let finished = |db: &mut Database, claim: i64| -> bool {
        db.client.query_one(finish, &[&id, &claim, &clones]).expect("a verdict").get(0)
    };
    assert!(!finished(&mut db, 1));
    assert!(finished(&mut db, 2));
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue"), 1);
    assert_eq!(bodies(&mut db), 1, "the clone has it");
    assert!(!finished(&mut db, 2));
}

// Req: K4
#[test]
fn a_body_goes_with_the_last_row_that_refers_to_it() {
    let mut db = harness::database();
    let (id, claim) = claimed(&mut db, &["a@x", "b@x", "c@x"]);
    let ids = split(&mut db, id, claim, &["a@x"], json!([{"rcpt_to": ["b@x"]}, {"rcpt_to": ["c@x"]}]))
        .expect("our claim");
    db.run(&format!("DELETE FROM pepsi.workqueue WHERE workqueue_id = {}", ids[0]));
    assert_eq!(bodies(&mut db), 1);
    db.run("DELETE FROM pepsi.workqueue");
    assert_eq!(bodies(&mut db), 0, "two rows in one statement");
    let (id, _) = claimed(&mut db, &["a@x"]);
    db.run("INSERT INTO pepsi.workqueue_body (body) VALUES ('new')");
    db.run(&format!("UPDATE pepsi.workqueue SET body_id = (SELECT max(body_id) FROM pepsi.workqueue_body) WHERE workqueue_id = {id}"));
    assert_eq!(
        db.text("SELECT encode(body, 'escape') FROM pepsi.workqueue_body"),
        "new",
        "the replaced body went"
    );
    db.run(&format!("UPDATE pepsi.workqueue SET body_id = NULL WHERE workqueue_id = {id}"));
    assert_eq!(bodies(&mut db), 0);
}

// Req: K4
#[test]
fn what_two_deletes_leave_to_each_other_is_collected() {
    let mut db = harness::database();
    let (id, claim) = claimed(&mut db, &["a@x", "b@x"]);
    let ids = split(&mut db, id, claim, &["a@x"], json!([{"rcpt_to": ["b@x"]}])).expect("our claim");
    let mut other = db.connect();
    db.run(&format!("BEGIN; DELETE FROM pepsi.workqueue WHERE workqueue_id = {id}"));
    let delete = "DELETE FROM pepsi.workqueue WHERE workqueue_id = $1";
    assert_eq!(other.execute(delete, &[&ids[0]]).expect("no deadlock"), 1);
    db.run("COMMIT");
    assert_eq!(bodies(&mut db), 1, "each saw the other's row");
    assert_eq!(db.number("SELECT pepsi.workqueue_body_gc()"), 1);
    assert_eq!(bodies(&mut db), 0);
}

// Req: K4
#[test]
fn a_sweep_is_bounded_goes_on_where_it_stopped_and_spares_bodies_in_use() {
    let mut db = harness::database();
    let (id, _) = claimed(&mut db, &["a@x"]);
    db.run("INSERT INTO pepsi.workqueue_body (body) SELECT '' FROM generate_series(1, 10050)");
    assert_eq!(db.number("SELECT pepsi.workqueue_body_gc()"), 10_000);
    assert_eq!(db.number("SELECT pepsi.workqueue_body_gc()"), 50);
    assert_eq!(bodies(&mut db), 1);
    // A body whose row is not committed yet, and one that a transaction under way refers to, are left alone.
    let mut other = db.connect();
    other
        .batch_execute("BEGIN; SELECT pepsi.workqueue_add('', '{a@b}', '', 'new')")
        .expect("an open transaction");
    other
        .batch_execute(&format!(
            "INSERT INTO pepsi.workqueue (mail_from, rcpt_to, headers, body_id)
            SELECT mail_from, rcpt_to, headers, body_id FROM pepsi.workqueue WHERE workqueue_id = {id}"
        ))
        .expect("one more row of that body");
    db.run(&format!("DELETE FROM pepsi.workqueue WHERE workqueue_id = {id}"));
    assert_eq!(db.number("SELECT pepsi.workqueue_body_gc()"), 0);
    other.batch_execute("COMMIT").expect("nothing was taken from it");
    assert_eq!(bodies(&mut db), 2);
    assert_eq!(db.number("SELECT pepsi.workqueue_body_gc()"), 0);
    // An orphan behind more bodies in use than one call looks at is found by a later call of the same session.
    db.run(
        "SELECT pepsi.workqueue_add('', '{a@b}', '', 'x') FROM generate_series(1, 30);
        INSERT INTO pepsi.workqueue_body (body) VALUES ('orphan')",
    );
    let calls = (1..20).find(|_| db.number("SELECT pepsi.workqueue_body_gc(5)") == 1);
    assert!(calls.is_some_and(|calls| calls > 2), "{calls:?}");
}

// Req: C2
#[test]
fn a_change_of_the_overlay_notifies_once_a_statement() {
    let mut db = harness::database();
    let mut listener = db.connect();
    listener.batch_execute("LISTEN config_changed").expect("LISTEN");
    for change in [
        "INSERT INTO pepsi.config_override VALUES ('global', 'stage-a', 'PARALLELISM', '1'), ('global', 'stage-a', 'FUSION', 'no')",
        "UPDATE pepsi.config_override SET value = '2'",
        "DELETE FROM pepsi.config_override",
        "TRUNCATE pepsi.config_override",
    ] {
        db.run(change);
        let mut count = 0;
        wait_until("a notification", PATIENCE, || {
            listener.simple_query("").expect("an empty query");
            let mut waiting = listener.notifications();
            while fallible_iterator::FallibleIterator::next(&mut waiting.iter())
                .expect("a connection")
                .is_some()
            {
                count += 1;
            }
            count > 0
        });
        assert_eq!(count, 1, "{change}");
    }
    let twice = "INSERT INTO pepsi.config_override VALUES ('global', 'stage-a', 'FUSION', 'no'), ('global', 'STAGE-A', 'fusion', 'no')";
    assert!(db.client.batch_execute(twice).is_err(), "names are the same in any case");
}

#[test]
fn the_event_log_only_grows() {
    let mut db = harness::database();
    db.run("INSERT INTO pepsi.event_log (action, target) VALUES ('set', 'x')");
    for change in
        ["UPDATE pepsi.event_log SET action = 'y'", "DELETE FROM pepsi.event_log", "TRUNCATE pepsi.event_log"]
    {
        assert!(db.client.batch_execute(change).is_err(), "{change}");
    }
    assert_eq!(db.number("SELECT count(*) FROM pepsi.event_log"), 1);
}

#[test]
fn everything_in_the_schema_says_what_it_is() {
    let mut db = harness::database();
    let bare = "SELECT coalesce(string_agg(name, ' '), '') FROM (
        SELECT c.relname || '.' || a.attname AS name FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relnamespace = 'pepsi'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
          AND col_description(c.oid, a.attnum) IS NULL
        UNION ALL
        SELECT relname FROM pg_class
        WHERE relnamespace = 'pepsi'::regnamespace AND relkind = 'r' AND obj_description(oid, 'pg_class') IS NULL
        UNION ALL
        SELECT proname FROM pg_proc WHERE pronamespace = 'pepsi'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL
    ) AS bare";
    assert_eq!(db.text(bare), "");
}
