//! Recipients of all kinds by their domains, tables that are refused, and what becomes of a message whose recipients part.

use super::*;
use crate::proto::conf::{Conf, Sources};
use crate::worker::fixture::{self, Move, Row, Unconnected};
use serde_json::json;
use std::fs;

fn read(options: &str) -> Result<Route, ConfError> {
    let text = format!("[stage-x]\nPROGRAM = pepsi-stage-route\n{options}\n");
    let sources = Sources { variable: &|_| None, inline: &|_| Err("none".into()) };
    let conf = Conf::parse("test.conf", &text, &sources).unwrap();
    Route::read(&conf.section("stage-x").unwrap())
}

fn refused(options: &str, clause: &str) {
    let error = read(options).unwrap_err().to_string();
    assert!(error.contains(clause), "{options}: {error}");
}

/// A table in a file of its own.
fn file(name: &str, text: &str) -> String {
    let folder = std::env::temp_dir().join(format!("pepsi-route-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

const TABLE: &str = "ROUTES = Example.ORG:Local .example.org:hosts .deep.example.org:deep bücher.example:books \
                     xn--bcher-kva.example:ace [192.0.2.1]:literal [IPv6:2001:DB8::1]:six -:bare localhost:here\n\
                     NEXT_STAGE = relay";

#[test]
fn the_most_specific_entry_counts() {
    let route = read(TABLE).unwrap();
    for (recipient, stage) in [
        ("ann@example.org", "local"),
        ("ann@EXAMPLE.org.", "local"),
        ("ann@mail.example.org", "hosts"),
        ("ann@a.b.example.org", "hosts"),
        ("ann@deep.example.org", "hosts"),
        ("ann@a.deep.example.org", "deep"),
        ("ann@notexample.org", "relay"),
        ("ann@example.org.example", "relay"),
        ("ann@org", "relay"),
        ("ann@BÜCHER.example", "books"),
        ("ann@xn--bcher-kva.example", "ace"),
        ("ann@[192.0.2.1]", "literal"),
        ("ann@[192.0.2.11]", "relay"),
        ("ann@[ipv6:2001:db8::1]", "six"),
        ("ann", "bare"),
        ("\"a@example.org\"", "bare"),
        ("", "bare"),
        ("ann@", "relay"),
        ("@example.org", "local"),
        ("\"a b\"@example.org", "local"),
        ("\"ann@x\"@example.org", "local"),
        ("a@example.org@elsewhere.example", "relay"),
        ("a@elsewhere.example@example.org", "local"),
        ("ann@example.org ", "relay"),
        ("ann@..", "relay"),
        ("ann@.", "relay"),
        (&format!("{}@example.org", "l".repeat(70)), "local"),
        (&format!("ann@{}.example.org", "d.".repeat(1 << 18)), "hosts"),
        ("ann@localhost", "here"),
    ] {
        assert_eq!(route.stage(recipient), stage, "{recipient:.60}");
    }
}

#[test]
fn what_no_entry_matches_goes_by_the_star_or_next_stage() {
    let route = read("ROUTES = a.example:a *:rest\nNEXT_STAGE = next").unwrap();
    assert_eq!(
        [route.stage("x@b.example"), route.stage("x"), route.stage("x@a.example")],
        ["rest", "rest", "a"]
    );
    let route = read("NEXT_STAGE = next").unwrap();
    assert_eq!([route.stage("x@b.example"), route.stage("")], ["next", "next"]);
    refused("ROUTES = a.example:a", "test.conf:1: [stage-x] NEXT_STAGE: is missing");
}

// Req: S4
#[test]
fn a_wrong_entry_is_named() {
    let wrong = |entry: &str, clause: &str| {
        refused(&format!("ROUTES = b.example:b {entry}\nNEXT_STAGE = n"), clause);
        let path = file("wrong", &format!("# head\n\n  b.example b\n{}\n", entry.replacen(':', " ", 1)));
        if !entry.starts_with("[") {
            let place = format!("{path}:4: ");
            refused(&format!("ROUTES_FILE = {path}\nNEXT_STAGE = n"), &place);
            refused(&format!("ROUTES_FILE = {path}\nNEXT_STAGE = n"), clause);
        }
    };
    wrong("B.example:c", "B.example has a stage already, b");
    wrong("a..b:c", "empty label");
    wrong("a@b:c", "second \"@\"");
    wrong("*.example:c", "without its \"*\"");
    wrong(".:c", "no domain");
    wrong("a:-c", "cannot be the name of a stage");
    wrong(".[192.0.2.1]:c", "nothing is below");
    refused("ROUTES = [192.0.2.300]:c\nNEXT_STAGE = n", "address literal");
    refused("ROUTES = a\nNEXT_STAGE = n", "\"\" of a cannot be the name of a stage");
    refused("ROUTES = *:a *:b", "* has a stage already");
    refused("ROUTES = -:a -:b\nNEXT_STAGE = n", "- has a stage already");
}

// Req: S4
#[test]
fn a_file_that_cannot_be_read_is_named() {
    refused("ROUTES_FILE = routes\nNEXT_STAGE = n", "[stage-x] ROUTES_FILE: is no absolute path");
    refused("ROUTES_FILE = /nonexistent/routes\nNEXT_STAGE = n", "/nonexistent/routes:0: cannot read it: ");
    refused("ROUTES_FILE = /\nNEXT_STAGE = n", "is a directory");
    let path = file("three", "a.example a b\n");
    refused(&format!("ROUTES_FILE = {path}\nNEXT_STAGE = n"), &format!("{path}:1: "));
    let path = file("long", "");
    fs::File::create(&path).unwrap().set_len((16 << 20) + 1).unwrap();
    refused(&format!("ROUTES_FILE = {path}\nNEXT_STAGE = n"), "longer than 16777216 bytes");
    let path = file("bytes", "");
    fs::write(&path, b"a.example a\nb\xff.example b\n").unwrap();
    refused(
        &format!("ROUTES_FILE = {path}\nNEXT_STAGE = n"),
        &format!("{path}:2: the byte \\xff is not UTF-8"),
    );
}

#[test]
fn a_file_and_the_option_make_one_table() {
    let path = file("both", "# ours\r\n\r\n a.example\tA \r\n.a.example b\n* d");
    let route = read(&format!("ROUTES = c.example:c\nROUTES_FILE = {path}")).unwrap();
    let stages =
        ["x@a.example", "x@x.a.example", "x@c.example", "x@z"].map(|recipient| route.stage(recipient));
    assert_eq!(stages, ["a", "b", "c", "d"]);
    refused(
        &format!("ROUTES = a.example:c\nROUTES_FILE = {path}"),
        "both:3: a.example has a stage already, c",
    );
}

#[test]
fn recipients_are_grouped_in_the_order_in_which_their_stages_are_met() {
    let route = read(TABLE).unwrap();
    let rcpt_to = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    let recipients = rcpt_to(&["a@z", "b@example.org", "c", "d@example.org", "e@z"]);
    assert_eq!(route.groups(&recipients), [("relay", vec![0, 4]), ("local", vec![1, 3]), ("bare", vec![2])]);
    assert_eq!(route.groups(&[]), []);
}

/// Where the row goes and with which recipients, and the same of each row beside it.
fn ways(rcpt_to: &[&str], state: serde_json::Value) -> Vec<(String, Vec<String>, serde_json::Value)> {
    let row =
        Row { rcpt_to: rcpt_to.iter().map(|text| text.to_string()).collect(), state, ..fixture::row(1) };
    let rcpt_to = row.rcpt_to.clone();
    let message = fixture::context(row, fixture::route("x"));
    let outcome = read(TABLE).unwrap().run(message, &mut Unconnected).unwrap().into_outcome();
    let Move::Advance { stage } = outcome.to else { panic!("{outcome:?}") };
    let mut ways = vec![(stage, outcome.content.rcpt_to.unwrap_or(rcpt_to), outcome.merge)];
    let beside = outcome.fan.groups.into_iter();
    ways.extend(beside.map(|group| (group.stage.unwrap(), group.rcpt_to, group.state)));
    ways
}

// Req: A4, A5
#[test]
fn recipients_that_part_ways_are_split_with_their_dsn_parameters() {
    let dsn = |entries: &[i32]| json!({ "dsn": { "ret": "FULL", "rcpt": entries } });
    assert_eq!(
        ways(&["a@z", "B@Example.org.", "c", "d@example.org", "e@z"], dsn(&[1, 2, 3, 4, 5])),
        [
            ("relay".into(), vec!["a@z".into(), "e@z".into()], dsn(&[1, 5])),
            ("local".into(), vec!["B@Example.org.".into(), "d@example.org".into()], dsn(&[2, 4])),
            ("bare".into(), vec!["c".into()], dsn(&[3])),
        ]
    );
    for together in [&["a@z", "b@z"][..], &["a@z"], &[]] {
        let kept: Vec<String> = together.iter().map(|text| text.to_string()).collect();
        assert_eq!(ways(together, dsn(&[1, 2])), [("relay".into(), kept, json!({}))]);
    }
}
