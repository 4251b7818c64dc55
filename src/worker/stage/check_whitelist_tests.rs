//! Who is listed by whom, which way each goes, and sections that are refused.

use super::*;
use crate::proto::conf::{Conf, Sources};
use crate::worker::context::Outcome;
use crate::worker::fixture::{self, Content, Move, Row, Unconnected};

/// A whitelist of pairs, which counts how often it is asked.
struct Book {
    pairs: Vec<(&'static str, &'static str)>,
    asked: usize,
}

impl Tables for Book {
    fn listed(
        &mut self,
        addresses: &[String],
        correspondents: &[String],
    ) -> Result<Vec<(String, String)>, StageError> {
        self.asked += 1;
        assert!(!addresses.is_empty() && !correspondents.is_empty());
        let asked = |all: &[String], one: &str| all.iter().any(|other| other == one);
        let found = self
            .pairs
            .iter()
            .filter(|(address, one)| asked(addresses, address) && asked(correspondents, one));
        Ok(found.map(|(address, one)| ((*address).to_owned(), (*one).to_owned())).collect())
    }
}

fn read(options: &str) -> Result<CheckWhitelist, ConfError> {
    let text = format!("[stage-check]\nPROGRAM = pepsi-stage-check-whitelist\n{options}\n");
    let sources = Sources { variable: &|_| None, inline: &|_| Err("none".into()) };
    let conf = Conf::parse("test.conf", &text, &sources).unwrap();
    CheckWhitelist::read(&conf.section("stage-check").unwrap())
}

fn run(options: &str, pairs: &[(&'static str, &'static str)], row: Row) -> Outcome {
    let stage = read(&format!("NEXT_STAGE = Next\nLISTED_STAGE = Listed\n{options}")).unwrap();
    let mut book = Book { pairs: pairs.to_vec(), asked: 0 };
    let outcome =
        stage.run(fixture::context(row, fixture::route("check")), &mut book).unwrap().into_outcome();
    assert!(book.asked <= 1);
    outcome
}

/// Whether its one recipient has listed the sender.
#[track_caller]
fn listed(options: &str, pairs: &[(&'static str, &'static str)], row: Row) -> bool {
    let outcome = run(options, pairs, row);
    assert_eq!((&outcome.content, outcome.fan.is_empty()), (&Content::default(), true));
    match &outcome.to {
        Move::Advance { stage } if stage == "listed" => true,
        Move::Advance { stage } if stage == "next" => false,
        Move::Advance { .. } | Move::Pause { .. } | Move::Fail | Move::Finish | Move::Stay => {
            panic!("{outcome:?}")
        }
    }
}

fn mail(from: &str, to: &str) -> Row {
    Row { mail_from: from.into(), rcpt_to: vec![to.into()], header_from: None, ..fixture::row(1) }
}

#[test]
fn a_sender_is_listed_by_its_address_or_its_domain() {
    for (from, to, is_listed) in [
        ("ann@example.org", "bob@x", true),
        ("Ann@Example.ORG", "BOB@X.", true),
        ("\"ann\"@example.org", "\"bob\"@x", true),
        ("eve@example.org", "bob@x", false),
        ("eve@corp.example", "bob@x", true),
        ("eve@sub.corp.example", "bob@x", false),
        ("corp.example", "bob@x", false),
        ("ann@example.org", "eve@x", false),
        ("\"a b\"@c", "bob@x", true),
    ] {
        let pairs = [
            ("bob@x", "ann@example.org"),
            ("bob@x", "@corp.example"),
            ("bob@x", "\"a b\"@c"),
            ("eve@x", "@nowhere"),
        ];
        assert_eq!(listed("", &pairs, mail(from, to)), is_listed, "{from} {to}");
    }
}

#[test]
fn the_null_sender_and_what_is_no_address_are_listed_by_nobody() {
    let pairs = [
        ("bob@x", "ann@example.org"),
        ("bob@x", ""),
        ("bob@x", "@"),
        ("bob@x", "root"),
        ("", "ann@example.org"),
    ];
    let with_header = |row: Row| Row { header_from: Some("ann@example.org".into()), ..row };
    for sender in ["envelope", "header", "either", "both"] {
        let options = format!("SENDER = {sender}");
        assert!(!listed(&options, &pairs, with_header(mail("", "bob@x"))), "{sender}");
        for recipient in ["", "root", "a b@c", "bob@x@x", "\0"] {
            assert!(
                !listed(&options, &pairs, with_header(mail("ann@example.org", recipient))),
                "{recipient:?}"
            );
        }
    }
    for from in ["root", "@", "a@", "a b@c", "ann@example.org@x", "\0", &"x".repeat(1 << 20)] {
        assert!(!listed("", &pairs, mail(from, "bob@x")), "{from:?}");
    }
    let nobody = run("", &pairs, Row { rcpt_to: Vec::new(), ..fixture::row(1) });
    assert_eq!(nobody.to, Move::Advance { stage: "next".into() });
}

#[test]
fn the_option_says_which_sender_is_asked_about() {
    let pairs = [("bob@x", "ann@example.org"), ("bob@x", "eve@example.org")];
    let ways = |from: &str, header: Option<&str>| {
        ["envelope", "header", "either", "both"].map(|sender| {
            let row = Row { header_from: header.map(str::to_owned), ..mail(from, "bob@x") };
            listed(&format!("SENDER = {sender}"), &pairs, row)
        })
    };
    assert_eq!(ways("ann@example.org", Some("Eve <eve@example.org>")), [true; 4]);
    assert_eq!(ways("ann@example.org", Some("no@x")), [true, false, true, false]);
    assert_eq!(ways("no@x", Some("Ann@Example.org")), [false, true, true, false]);
    assert_eq!(ways("no@x", Some("no@x")), [false; 4]);
    for header in [None, Some(""), Some("ann"), Some("(ann@example.org)"), Some("\"ann@example.org\"")] {
        assert_eq!(ways("ann@example.org", header), [true, false, true, false], "{header:?}");
    }
    // All of several authors; a decoded name with a comma is none.
    assert_eq!(ways("no@x", Some("ann@example.org, no@x")), [false; 4]);
    assert_eq!(ways("no@x", Some("eve@example.org, ann@example.org")), [false, true, true, false]);
    assert_eq!(ways("no@x", Some("Lee, Ann <ann@example.org>")), [false, true, true, false]);
    assert_eq!(ways("no@x", Some(&"ann@example.org,(".repeat(1 << 14))), [false, true, true, false]);
}

#[test]
fn a_tag_falls_back_to_the_user() {
    let pairs = [("bob@x", "ann@example.org"), ("eve+shop@x", "ann@example.org")];
    let way = |options: &str, to: &str| listed(options, &pairs, mail("ann@example.org", to));
    for (to, with, without) in [
        ("bob+shop@x", true, false),
        ("Bob+a+b@x", true, false),
        ("bob+@x", true, false),
        ("eve+shop@x", true, true),
        ("eve@x", false, false),
        ("eve+other@x", false, false),
        ("+bob@x", false, false),
        ("bob-shop@x", false, false),
        ("\"bob+ \"@x", true, false),
    ] {
        assert_eq!((way("RECIPIENT_DELIMITER = +", to), way("", to)), (with, without), "{to}");
    }
    assert!(way("RECIPIENT_DELIMITER = -", "bob-shop@x"));
}

// Req: A5
#[test]
fn recipients_that_part_ways_are_split() {
    let pairs = [("bob@x", "@example.org"), ("eve@x", "ann@example.org")];
    let row = |recipients: &[&str]| {
        let entries: Vec<_> = recipients.iter().map(|one| json!({ "orcpt": one })).collect();
        Row {
            rcpt_to: recipients.iter().map(|one| (*one).to_owned()).collect(),
            state: json!({ "dsn": { "rcpt": entries } }),
            ..fixture::row(1)
        }
    };
    for (recipients, stays, goes, parts) in [
        (
            &["bob@x", "carl@x", "eve@x", "dan@x"][..],
            &["bob@x", "eve@x"][..],
            "listed",
            &["carl@x", "dan@x"][..],
        ),
        (&["carl@x", "bob@x"], &["carl@x"], "next", &["bob@x"]),
    ] {
        let outcome = run("", &pairs, row(recipients));
        assert_eq!(outcome.to, Move::Advance { stage: goes.into() });
        assert_eq!(outcome.content.rcpt_to.unwrap(), stays);
        let dsn_of = |all: &[&str]| -> Vec<_> { all.iter().map(|one| json!({ "orcpt": one })).collect() };
        assert_eq!(outcome.merge["dsn"]["rcpt"], json!(dsn_of(stays)));
        let [group] = outcome.fan.groups.as_slice() else { panic!("{:?}", outcome.fan) };
        let other = if goes == "listed" { "next" } else { "listed" };
        assert_eq!(
            (group.rcpt_to.as_slice(), group.stage.as_deref()),
            (&parts.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>()[..], Some(other))
        );
        assert_eq!(group.state, json!({ "dsn": { "rcpt": dsn_of(parts) } }));
    }
    let outcome = run("", &pairs, row(&["eve@x", "bob@x"]));
    assert_eq!((outcome.to, outcome.content), (Move::Advance { stage: "listed".into() }, Content::default()));
    assert!(outcome.fan.is_empty());
}

#[test]
fn a_lost_database_puts_the_message_off() {
    let stage = read("NEXT_STAGE = next\nLISTED_STAGE = listed").unwrap();
    let ask = |row| stage.run(fixture::context(row, fixture::route("check")), &mut Unconnected);
    assert!(ask(fixture::row(1)).unwrap_err().database.is_some());
    assert!(ask(mail("", "bob@x")).is_ok());
}

// Req: S4
#[test]
fn a_section_says_what_is_wrong_with_it() {
    for (options, part) in [
        ("LISTED_STAGE = a", "NEXT_STAGE: is missing"),
        ("NEXT_STAGE = a", "LISTED_STAGE: is missing"),
        ("NEXT_STAGE = a\nLISTED_STAGE = a b", "LISTED_STAGE: "),
        (
            "NEXT_STAGE = a\nLISTED_STAGE = b\nSENDER = me",
            "SENDER: \"me\" is none of envelope, header, either or both",
        ),
        (
            "NEXT_STAGE = a\nLISTED_STAGE = b\nRECIPIENT_DELIMITER = ++",
            "RECIPIENT_DELIMITER: \"++\" is not one",
        ),
        (
            "NEXT_STAGE = a\nLISTED_STAGE = b\nRECIPIENT_DELIMITER = x",
            "RECIPIENT_DELIMITER: \"x\" is not one",
        ),
        (
            "NEXT_STAGE = a\nLISTED_STAGE = b\nRECIPIENT_DELIMITER = @",
            "RECIPIENT_DELIMITER: \"@\" is not one",
        ),
    ] {
        let error = read(options).unwrap_err().to_string();
        assert!(error.starts_with("test.conf:") && error.contains(part), "{error}");
    }
}
