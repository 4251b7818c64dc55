//! Whose mail enters whom, and whose does not.

use super::*;
use crate::proto::conf::{Conf, Sources};
use crate::worker::fixture::{self, Content, Move, Row, Unconnected};
use serde_json::json;

/// What was entered: owner, correspondents, source.
#[derive(Default)]
struct Book(Vec<(String, Vec<String>, String)>);

impl Tables for Book {
    fn list(&mut self, address: &str, correspondents: &[String], source: &str) -> Result<u64, StageError> {
        self.0.push((address.to_owned(), correspondents.to_vec(), source.to_owned()));
        Ok(0)
    }
}

fn read(options: &str) -> Result<AutoWhitelist, ConfError> {
    let text = format!("[stage-learn]\nPROGRAM = pepsi-stage-auto-whitelist\n{options}\n");
    let sources = Sources { variable: &|_| None, inline: &|_| Err("none".into()) };
    let conf = Conf::parse("test.conf", &text, &sources).unwrap();
    AutoWhitelist::read(&conf.section("stage-learn").unwrap())
}

fn context(row: Row) -> Context {
    let mut route = fixture::route("learn");
    route.next = Some("next".into());
    fixture::context(row, route)
}

fn stage(options: &str) -> AutoWhitelist {
    read(&format!("NEXT_STAGE = next\n{options}")).unwrap()
}

/// What a message enters; it goes on as it came.
fn entered(options: &str, row: Row) -> Vec<(String, Vec<String>, String)> {
    let mut book = Book::default();
    let outcome = stage(options).run(context(row), &mut book).unwrap().into_outcome();
    assert_eq!((outcome.to, outcome.content), (Move::Advance { stage: "next".into() }, Content::default()));
    assert_eq!(outcome.merge, json!({}));
    book.0
}

fn ours(headers: &[u8]) -> Row {
    Row { state: json!({ "local_origin": true }), headers: Some(headers.to_vec()), ..fixture::row(1) }
}

#[test]
fn recipients_of_our_users_are_entered_once_each() {
    let mut row = ours(b"Subject: x\r\n");
    row.mail_from = "Ann@Example.ORG".into();
    row.rcpt_to = ["Bob@example.net", "\"bob\"@EXAMPLE.net.", "ann@example.org", "carl@x", "\"a b\"@x"]
        .map(str::to_owned)
        .into();
    let expected = ["\"a b\"@x", "bob@example.net", "carl@x"].map(str::to_owned).to_vec();
    assert_eq!(entered("", row.clone()), [("ann@example.org".to_owned(), expected, "learn".to_owned())]);
    row.state = json!({ "origin": { "auth_user": "ann" } });
    assert_eq!(entered("LEARN = yes", row.clone()).len(), 1);
    assert_eq!(entered("LEARN = no", row), []);
}

#[test]
fn mail_of_others_and_of_nobody_enters_nothing() {
    for state in [
        json!({}),
        json!({ "local_origin": false }),
        json!({ "local_origin": "true" }),
        json!({ "origin": { "auth_user": "" } }),
        json!({ "origin": { "auth_user": null } }),
        json!({ "origin": { "auth_user": 7 } }),
        json!({ "origin": "auth_user" }),
        json!({ "auth_user": "ann" }),
    ] {
        assert_eq!(entered("", Row { state, ..fixture::row(1) }), []);
    }
    for sender in ["", "root", "a b@c", "a@b@c", "\0", &format!("{}@x", "a".repeat(1 << 20))] {
        assert_eq!(entered("", Row { mail_from: sender.into(), ..ours(b"") }), []);
    }
}

#[test]
fn what_is_no_correspondent_is_passed_over() {
    let odd = ["", "root", "a b@c", "\"a@b", "a@b@c", "\0@x", "SRS0=a=b=c=d@x", "ann@example.org", "Eve@x"];
    let row = Row { rcpt_to: odd.map(str::to_owned).into(), ..ours(b"") };
    assert_eq!(entered("", row)[0].1, ["eve@x"]);
    let row = Row { rcpt_to: odd[..8].iter().map(|one| (*one).to_owned()).collect(), ..ours(b"") };
    assert_eq!(entered("", row), []);
}

#[test]
fn automatic_mail_enters_nothing() {
    for field in [
        "Auto-Submitted: auto-replied",
        "auto-submitted:\r\n AUTO-generated (by x); owner-email=\"a\"",
        "Auto-Submitted:",
        "Precedence: bulk",
        "Precedence: List ",
        "X-Autoreply: yes",
        "List-Id: <x.example>",
        "Auto-Submitted: no\r\nAuto-Submitted: auto-notified",
    ] {
        assert_eq!(entered("", ours(format!("From: a@b\r\n{field}\r\n").as_bytes())), [], "{field}");
    }
    let folded = [b"X-Long: ".to_vec(), b"x\r\n ".repeat(1 << 18)].concat();
    for headers in [
        &b"Auto-Submitted: no\r\n"[..],
        b"Auto-Submitted: No (a person)\r\n",
        b"Precedence: first-class\r\n",
        b"Subject: Auto-Submitted: auto-replied\r\n",
        b"Subject: x\r\n Precedence: bulk\r\n",
        b"\xff\0: bulk\r\nPrecedence\0: bulk\r\n",
        b"",
        &folded,
    ] {
        assert_eq!(entered("", ours(headers)).len(), 1);
    }
}

// Req: U1
#[test]
fn it_fuses_without_the_header_where_it_does_not_look_at_it() {
    let fuses = |options: &str, row: Row, loaded: Load| {
        let message = Context::new(row, loaded, fixture::route("learn").into());
        stage(options).can_fuse(&message, KIND.load)
    };
    assert!(fuses("", ours(b""), Load::Headers));
    assert!(!fuses("", ours(b""), Load::Metadata));
    assert!(fuses("LEARN = no", ours(b""), Load::Metadata));
    assert!(fuses("", fixture::row(1), Load::Metadata));
    // And what fuses so never asks for it.
    let mut route = fixture::route("learn");
    route.next = Some("next".into());
    let message = Context::new(fixture::row(1), Load::Metadata, route.into());
    assert!(stage("").run(message, &mut Unconnected).is_ok());
}

#[test]
fn a_lost_database_puts_the_message_off() {
    let error = stage("").run(context(ours(b"")), &mut Unconnected).unwrap_err();
    assert!(error.database.is_some() && !error.is_permanent);
}

// Req: S4
#[test]
fn a_section_says_what_is_wrong_with_it() {
    assert!(read("").unwrap_err().to_string().contains("NEXT_STAGE: is missing"));
    let error = read("NEXT_STAGE = next\nLEARN = maybe").unwrap_err().to_string();
    assert!(error.contains("LEARN: \"maybe\" is neither yes nor no"), "{error}");
}
