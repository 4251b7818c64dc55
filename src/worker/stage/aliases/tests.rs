//! What recipients come to: ordinary and odd addresses, circles, tables, DSN parameters, and sections that are refused.

use super::*;
use crate::proto::conf::{Conf, Sources};
use crate::worker::context::Outcome;
use crate::worker::fixture::{self, Move, Unconnected};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A map in a file of its own.
fn file(text: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let folder = std::env::temp_dir().join(format!("pepsi-aliases-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(NEXT.fetch_add(1, Ordering::Relaxed).to_string());
    fs::write(&path, text).unwrap();
    path
}

fn read(options: &str) -> Result<Aliases, ConfError> {
    let text = format!("[stage-x]\nPROGRAM = pepsi-stage-aliases\nNEXT_STAGE = next\n{options}\n");
    let sources = Sources { variable: &|_| None, inline: &|_| Err("none".into()) };
    let conf = Conf::parse("test.conf", &text, &sources).unwrap();
    Aliases::read(&conf.section("stage-x").unwrap())
}

/// One map, local at example.org and example.net.
pub fn stage(map: &str) -> Aliases {
    with(map, "")
}

fn with(map: &str, options: &str) -> Aliases {
    let local = "LOCAL_DOMAINS = Example.ORG example.net";
    read(&format!("MAPS = {}\n{local}\nRECIPIENT_DELIMITER = +\n{options}", file(map).display())).unwrap()
}

fn message(rcpt_to: &[&str], state: Value, bounce: Option<&str>) -> Context {
    let mut row = fixture::row(1);
    row.rcpt_to = rcpt_to.iter().map(|text| text.to_string()).collect();
    row.state = state;
    let mut route = fixture::route("x");
    (route.next, route.bounce) = (Some("next".into()), bounce.map(str::to_owned));
    fixture::context(row, route)
}

fn run(stage: &Aliases, rcpt_to: &[&str]) -> Outcome {
    let message = message(rcpt_to, json!({}), Some("bounce"));
    stage.run(message, &mut Unconnected).unwrap().into_outcome()
}

/// The recipients that go on, separated by blanks; `=` where nothing was written.
fn goes_on(stage: &Aliases, rcpt_to: &[&str]) -> String {
    let outcome = run(stage, rcpt_to);
    assert_eq!(outcome.to, Move::Advance { stage: "next".into() }, "{rcpt_to:?}");
    assert!(outcome.fan.is_empty(), "{outcome:?}");
    outcome.content.rcpt_to.map_or_else(|| "=".to_owned(), |rcpt_to| rcpt_to.join(" "))
}

#[test]
fn what_has_no_entry_is_not_touched() {
    let stage = stage("root: ann\n");
    let long = format!("{}@example.org", "l".repeat(70));
    for recipient in [
        "bob@Example.ORG.",
        "BOB",
        "\"a b\"@example.org",
        "\"a@b\"@c",
        "",
        "@",
        "@example.org",
        "a b",
        "a@b@c",
        "\"open@example.org",
        "üñí@bücher.example",
        "root@elsewhere.example",
        "root@[192.0.2.1]",
        "a\nb@x",
        &long,
    ] {
        assert_eq!(goes_on(&stage, &[recipient, recipient]), "=", "{recipient:?}");
    }
    assert_eq!(goes_on(&stage, &[]), "=");
}

#[test]
fn names_are_found_however_they_are_written() {
    let stage =
        stage("Root: ann\nbob@far.example: b@x\n\"a b\": c\n@all.example: catch\nsome@all.example: some\n");
    for (recipient, expected) in [
        ("root@example.org", "ann@example.org"),
        ("ROOT@EXAMPLE.NET.", "ann@example.org"),
        ("root", "ann@example.org"),
        ("\"root\"@example.org", "ann@example.org"),
        ("\"r\\oot\"@example.org", "ann@example.org"),
        ("Bob@Far.Example", "b@x"),
        ("bob@example.org", "="),
        ("\"a b\"@example.org", "c@example.org"),
        ("a b@example.org", "c@example.org"),
        ("some@all.example", "some@example.org"),
        ("other@all.example", "catch@example.org"),
        ("@all.example", "catch@example.org"),
        ("\"x@y\"@all.example", "catch@example.org"),
    ] {
        assert_eq!(goes_on(&stage, &[recipient]), expected, "{recipient}");
    }
    let long = format!("{}@all.example", "l".repeat(1 << 20));
    assert_eq!(goes_on(&stage, &[&long]), "catch@example.org");
    let stage = with("Root: ann\nAnn@X: bob", "CASE_SENSITIVE = yes");
    for (recipient, expected) in
        [("Root", "ann@example.org"), ("root", "="), ("Ann@x", "bob@example.org"), ("ann@X", "=")]
    {
        assert_eq!(goes_on(&stage, &[recipient]), expected, "{recipient}");
    }
}

#[test]
fn without_a_local_domain_a_local_name_is_a_recipient_without_one() {
    let stage = read(&format!("MAPS = {}", file("root: ann, bob@x").display())).unwrap();
    assert_eq!(goes_on(&stage, &["root"]), "ann bob@x");
    assert_eq!(goes_on(&stage, &["root@example.org", "root+x"]), "=");
}

#[test]
fn a_tag_goes_on_with_a_target_that_knows_it() {
    let stage = stage(
        "ann: bob\nann+work: \\ann+work\nc: \"x y\", far@far.example, d+own\nv@virtual.example: w@virtual.example\n\
         long: llllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll\n@all.example: catch\n",
    );
    for (recipient, expected) in [
        ("ann+Lists@example.org", "bob+Lists@example.org"),
        ("ANN+WORK@example.org", "ann+work@example.org"),
        ("ann+@example.org", "bob+@example.org"),
        ("c+t", "\"x y+t\"@example.org far@far.example d+own@example.org"),
        ("v+t@virtual.example", "w+t@virtual.example"),
        ("long+t", "llllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll+t@example.org"),
        ("long+tt", "llllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll@example.org"),
        ("x+t@all.example", "catch@example.org"),
        ("+ann", "="),
    ] {
        assert_eq!(goes_on(&stage, &[recipient]), expected, "{recipient}");
    }
    let stage = read(&format!("MAPS = {}", file("ann: bob").display())).unwrap();
    assert_eq!(goes_on(&stage, &["ann+x"]), "=");
}

#[test]
fn entries_lead_on_to_entries_and_each_recipient_is_there_once() {
    let stage = stage(
        "team: ann, bob, chiefs\nchiefs: bob, carl@Far.example\nann: ann, copies@far.example\nbob: \\bob\n\
         copies@far.example: \\copies@far.example, Ann\n",
    );
    for (recipients, expected) in [
        (&["team"][..], "ann@example.org copies@far.example bob@example.org carl@Far.example"),
        (&["bob@example.net", "x@y", "bob"], "bob@example.org x@y"),
        (&["x@y", "chiefs", "x@Y.", "X@y"], "x@y bob@example.org carl@Far.example X@y"),
        (&["ann@example.org"], "ann@example.org copies@far.example"),
        (&["bob@example.org"], "="),
    ] {
        assert_eq!(goes_on(&stage, recipients), expected, "{recipients:?}");
    }
}

#[test]
fn circles_add_nothing_and_a_circle_alone_is_refused() {
    let stage = stage("a: b\nb: c\nc: a\nd: e, x@far\ne: d\nf: f\n@all.example: one@all.example\n");
    assert_eq!(goes_on(&stage, &["d"]), "x@far");
    assert_eq!(goes_on(&stage, &["f"]), "f@example.org");
    assert_eq!(goes_on(&stage, &["two@all.example"]), "one@all.example");
    let outcome = run(&stage, &["a"]);
    assert_eq!(outcome.to, Move::Advance { stage: "bounce".into() });
    assert_eq!(outcome.content.rcpt_to.unwrap(), ["a"]);
    assert_eq!(outcome.merge["last_error"], "the alias a goes in a circle at a@example.org");
    assert_eq!(outcome.merge["bounce"]["diagnostic"], IS_WRONG);
}

#[test]
fn depth_and_number_are_bounded() {
    let chain = |length: usize| {
        let lines: String = (0..length).map(|n| format!("a{n}: a{}\n", n + 1)).collect();
        stage(&lines)
    };
    assert_eq!(goes_on(&chain(MAX_DEPTH), &["a0"]), "a32@example.org");
    let outcome = run(&chain(MAX_DEPTH + 1), &["a0", "b@x"]);
    assert_eq!(outcome.content.rcpt_to.unwrap(), ["b@x"]);
    let reason = outcome.fan.groups[0].state["last_error"].as_str().unwrap().to_owned();
    assert_eq!(reason, "the alias a0 stands behind 32 others at a32@example.org");
    let list = |count: usize| (0..count).map(|n| format!("m{n}@x")).collect::<Vec<_>>().join(",");
    let most = expand::MAX_RECIPIENTS;
    let big = stage(&format!("big: {}\nbigger: big, b, c\ntwo: b, c\n", list(most - 1)));
    assert_eq!(run(&big, &["big"]).content.rcpt_to.unwrap().len(), most - 1);
    let outcome = run(&big, &["bigger", "big"]);
    assert_eq!(outcome.content.rcpt_to.unwrap().len(), most - 1);
    let reason = outcome.fan.groups[0].state["last_error"].as_str().unwrap().to_owned();
    assert_eq!(reason, "the alias bigger leads to more than 10000 recipients");
    // What is too much only together is done one by one.
    let outcome = run(&big, &["big", "two", "plain@x"]);
    assert_eq!(outcome.content.rcpt_to.unwrap().len(), most);
    let [group] = outcome.fan.groups.as_slice() else { panic!("{:?}", outcome.fan.groups.len()) };
    assert_eq!((group.rcpt_to.join(" "), group.status), ("two".into(), GroupStatus::Retry(PAUSE)));
    assert_eq!(goes_on(&big, &["two"]), "b@example.org c@example.org");
    // Each of 20 levels leads to the next one twice: a million ways.
    let wide: String = (0..20).map(|n| format!("w{n}: w{}, w{}\n", n + 1, n + 1)).collect();
    assert_eq!(goes_on(&stage(&wide), &["w0"]), "w20@example.org");
}

#[test]
fn what_costs_too_much_spoils_nothing_for_others() {
    // 320 entries that each lead to the same 320: 102 400 steps.
    let all = |name: &str| (0..320).map(|n| format!("{name}{n}")).collect::<Vec<_>>().join(",");
    let line = |n: i32| format!("v{n}: {}\nu{n}: z\n", all("u"));
    let lines = format!("w: {}\n", all("v")) + &(0..320).map(line).collect::<String>();
    let stage = stage(&format!("{lines}ann: bob\n"));
    let outcome = run(&stage, &["w", "ann", "plain@x"]);
    assert_eq!(outcome.content.rcpt_to.unwrap(), ["plain@x"]);
    let [broken, waits] = outcome.fan.groups.as_slice() else { panic!("{:?}", outcome.fan) };
    let reason = "the alias w leads to more than 100000 addresses";
    assert_eq!((broken.rcpt_to.join(" "), &broken.state["last_error"]), ("w".into(), &json!(reason)));
    assert_eq!((waits.rcpt_to.join(" "), waits.status), ("ann".into(), GroupStatus::Retry(PAUSE)));
    assert_eq!(goes_on(&stage, &["ann"]), "bob@example.org");
}

#[test]
fn what_takes_no_mail_goes_to_a_row_of_its_own() {
    let stage = stage("gone: :fail: Ask bob.\nmute: :fail:\nteam: ann, gone\nnull: /dev/null\n");
    let dsn = json!({ "ret": "HDRS", "envid": "e", "rcpt": [
        { "notify": "SUCCESS,FAILURE", "orcpt": "rfc822;o" }, { "notify": "SUCCESS" }, null, {},
    ] });
    let state = json!({ "dsn": dsn, "origin": {} });
    let recipients = ["team", "Gone@example.net", "mute", "null"];
    let done = stage.run(message(&recipients, state.clone(), Some("bounce")), &mut Unconnected);
    let outcome = done.unwrap().into_outcome();
    assert_eq!(outcome.to, Move::Advance { stage: "next".into() });
    assert_eq!(outcome.content.rcpt_to.unwrap(), ["ann@example.org"]);
    let rest = json!({ "notify": "FAILURE", "orcpt": "rfc822;o" });
    assert_eq!(outcome.merge["dsn"], json!({ "ret": "HDRS", "envid": "e", "rcpt": [rest] }));
    let rows: Vec<_> = outcome.fan.groups.iter().map(|group| (group.rcpt_to[0].as_str(), group)).collect();
    assert_eq!(rows.len(), 3);
    let (address, first) = rows[0];
    assert_eq!((address, first.stage.as_deref()), ("gone@example.org", Some("bounce")));
    let bounce = json!({
        "kind": "permanent", "failed_recipient": "gone@example.org", "diagnostic": "Ask bob.",
        "notify": "FAILURE", "orcpt": "rfc822;o", "envid": "e",
    });
    assert_eq!(first.state["bounce"], bounce);
    assert_eq!(first.state["dsn"], json!({ "ret": "HDRS", "envid": "e", "rcpt": [rest] }));
    assert_eq!(first.state["failed_stage"], "x");
    assert_eq!(first.state["failure_class"], "permanent");
    assert_eq!(first.state["last_error"], "gone@example.org: Ask bob.");
    let bounce = json!({
        "kind": "permanent", "failed_recipient": "Gone@example.net", "diagnostic": "Ask bob.",
        "notify": "SUCCESS", "envid": "e",
    });
    assert_eq!((rows[1].0, &rows[1].1.state["bounce"]), ("Gone@example.net", &bounce));
    let bounce = json!({
        "kind": "permanent", "failed_recipient": "mute", "diagnostic": TAKES_NO_MAIL, "envid": "e",
    });
    assert_eq!((rows[2].0, &rows[2].1.state["bounce"]), ("mute", &bounce));
    // Without a place for it, it fails.
    let done = stage.run(message(&recipients, state, None), &mut Unconnected).unwrap().into_outcome();
    let group = &done.fan.groups[1];
    assert_eq!((&group.stage, group.status), (&None, GroupStatus::Failed));
    assert_eq!(group.state.get("bounce"), None);
}

#[test]
fn a_message_of_which_nothing_goes_on_ends_as_its_recipients_do() {
    let stage = stage("gone: :fail: Ask bob.\nnull: /dev/null\nboth: :discard:, /dev/null\n");
    assert_eq!(run(&stage, &["null", "both"]).to, Move::Finish);
    let outcome = run(&stage, &["null", "gone", "Gone@example.net"]);
    assert_eq!(outcome.to, Move::Advance { stage: "bounce".into() });
    assert_eq!(outcome.content.rcpt_to.unwrap(), ["gone"]);
    assert_eq!(outcome.merge["bounce"]["failed_recipient"], "gone");
    let [group] = outcome.fan.groups.as_slice() else { panic!("{:?}", outcome.fan) };
    assert_eq!(group.rcpt_to, ["Gone@example.net"]);
    let outcome = stage.run(message(&["gone"], json!({}), None), &mut Unconnected).unwrap().into_outcome();
    assert_eq!(outcome.to, Move::Fail);
    assert_eq!(outcome.merge["last_error"], "gone: Ask bob.");
}

// Req: A4
#[test]
fn dsn_parameters_go_on_as_far_as_they_may() {
    let stage = stage(
        "one: only@x\nmany: a@x, b@x\nchain: one2\none2: many\nself: self, c@x\nhalf: d@x, /dev/null\n",
    );
    let rcpt = |notify: &str| json!({ "notify": notify, "orcpt": format!("rfc822;{notify}") });
    let rebuilt = |recipient: &str, entry: Value| {
        let state = json!({ "dsn": { "rcpt": [rcpt("x"), entry], "ret": "FULL" } });
        let done = stage.run(message(&["first@x", recipient], state, None), &mut Unconnected);
        let outcome = done.unwrap().into_outcome();
        let count = outcome.content.rcpt_to.unwrap().len();
        let dsn = &outcome.merge["dsn"];
        assert_eq!((dsn["ret"].as_str(), &dsn["rcpt"][0]), (Some("FULL"), &rcpt("x")), "{recipient}");
        let entries = dsn["rcpt"].as_array().unwrap();
        assert_eq!(entries.len(), count, "{recipient}");
        entries[1..].to_vec()
    };
    let both = |notify: &str| json!({ "notify": notify, "orcpt": "rfc822;SUCCESS,DELAY" });
    for (recipient, count, expected) in [
        ("one", 1, "SUCCESS,DELAY"),
        ("half", 1, "SUCCESS,DELAY"),
        ("many", 2, "DELAY"),
        ("chain", 2, "DELAY"),
        ("self", 2, "DELAY"),
    ] {
        assert_eq!(rebuilt(recipient, rcpt("SUCCESS,DELAY")), vec![both(expected); count], "{recipient}");
    }
    for (notify, expected) in [
        ("SUCCESS", "NEVER"),
        ("success, FAILURE", "FAILURE"),
        ("NEVER", "NEVER"),
        ("DELAY,SUCCESS,FAILURE", "DELAY,FAILURE"),
        ("", "NEVER"),
    ] {
        assert_eq!(without_success(notify), expected, "{notify}");
    }
    for odd in [json!(null), json!({}), json!("x"), json!([1]), json!({ "notify": 1 })] {
        assert_eq!(rebuilt("many", odd.clone()), vec![odd.clone(); 2], "{odd}");
    }
    // One that is not parallel to the recipients is left alone.
    for dsn in [json!({ "rcpt": [1, 2, 3] }), json!({ "ret": "FULL" }), json!("x")] {
        let done = stage.run(message(&["one", "many"], json!({ "dsn": dsn }), None), &mut Unconnected);
        assert_eq!(done.unwrap().into_outcome().merge.get("dsn"), None, "{dsn}");
    }
}

/// Maps by name, and how often each was asked.
#[derive(Default)]
struct Rows {
    maps: BTreeMap<&'static str, BTreeMap<&'static str, Vec<&'static str>>>,
    asked: Vec<(String, Vec<String>)>,
}

impl Tables for Rows {
    fn aliases(&mut self, map: &str, addresses: &[String]) -> Result<Vec<(String, Vec<String>)>, StageError> {
        self.asked.push((map.to_owned(), addresses.to_vec()));
        let rows = self.maps.get(map).into_iter().flatten();
        let found = rows.filter(|(address, _)| addresses.iter().any(|asked| asked == *address));
        let own = |targets: &[&str]| targets.iter().map(|target| target.to_string()).collect();
        Ok(found.map(|(address, targets)| (address.to_string(), own(targets))).collect())
    }
}

fn rows(entries: &[(&'static str, &[&'static str])]) -> Rows {
    let map = entries.iter().map(|(address, targets)| (*address, targets.to_vec())).collect();
    Rows { maps: BTreeMap::from([("virtual", map)]), asked: Vec::new() }
}

#[test]
fn a_table_is_asked_once_for_each_level() {
    let text =
        format!("MAPS = table:virtual {} table:empty\nLOCAL_DOMAINS = example.org", file("c: d@x").display());
    let stage = read(&text).unwrap();
    let mut tables = rows(&[("a@example.org", &["b", "x@y"]), ("b", &["c"]), ("@y", &["z@z", ":discard:"])]);
    let message = message(&["A", "a@example.org"], json!({}), None);
    let outcome = stage.run(message, &mut tables).unwrap().into_outcome();
    assert_eq!(outcome.content.rcpt_to.unwrap(), ["d@x", "z@z"]);
    let asked = |level: usize| tables.asked[2 * level].1.join(" ");
    assert_eq!(tables.asked.iter().filter(|(map, _)| map == "virtual").count(), 4);
    assert_eq!(asked(0), "a@example.org a @example.org");
    assert_eq!(asked(1), "b@example.org b x@y @y");
    assert_eq!(asked(2), "c@example.org c z@z @z");
    assert_eq!(asked(3), "d@x @x");
}

const NONE: &str = "cannot resolve an alias: table:virtual, address none@x: there is no target";

#[test]
fn an_entry_of_a_table_that_does_not_parse_keeps_only_its_own_recipients_waiting() {
    let stage = read("MAPS = table:virtual").unwrap();
    let mut tables =
        rows(&[("bad@x", &["|sh"]), ("team@x", &["ann@x", "bad@x"]), ("none@x", &[]), ("one@x", &["two@x"])]);
    let state = json!({ "dsn": { "rcpt": [1, 2, 3, 4] } });
    let recipients = ["one@x", "team@x", "bad@x", "none@x"];
    let outcome = stage.run(message(&recipients, state, None), &mut tables).unwrap().into_outcome();
    assert_eq!(outcome.to, Move::Advance { stage: "next".into() });
    assert_eq!(outcome.content.rcpt_to.unwrap(), ["two@x"]);
    let why = "cannot resolve an alias: table:virtual, address bad@x: \"|sh\" runs a program, which no alias may do here";
    let state = |entry: i32, why: &str| json!({ "dsn": { "rcpt": [entry] }, "last_error": why, "temporary_failures": 1 });
    for (group, (recipient, state)) in outcome.fan.groups.iter().zip([
        ("team@x", state(2, why)),
        ("bad@x", state(3, why)),
        ("none@x", state(4, NONE)),
    ]) {
        assert_eq!((group.rcpt_to.join(" "), &group.state), (recipient.to_owned(), &state));
        assert_eq!((&group.stage, group.status), (&None, GroupStatus::Retry(PAUSE)));
    }
    // Where none goes on, the first that waits stays on the row.
    let error = stage.run(message(&["none@x", "bad@x"], json!({}), None), &mut tables).unwrap_err();
    assert_eq!(error.text, NONE);
    let kept = error.clone().into_kept();
    assert_eq!(kept.content.rcpt_to.unwrap(), ["none@x"]);
    assert_eq!(kept.fan.groups.len(), 1);
    assert!(!error.is_permanent);
}

#[test]
fn a_database_that_is_gone_ends_the_attempt() {
    let stage = read("MAPS = table:virtual").unwrap();
    assert!(stage.run(message(&["a@x"], json!({}), None), &mut Unconnected).is_err());
    // No address, no question; nor for text that no database holds.
    assert!(stage.run(message(&[], json!({}), None), &mut Unconnected).is_ok());
    assert!(stage.run(message(&["a\0b"], json!({}), None), &mut Unconnected).is_ok());
}

#[test]
fn the_most_specific_entry_counts_and_then_the_first_map() {
    let (first, second) = (file("@x: one@y\na: one@y\n"), file("a@x: two@y\na: two@y\nb@x: two@y\n"));
    let text = format!("MAPS = {} {}\nLOCAL_DOMAINS = x", first.display(), second.display());
    let stage = read(&text).unwrap();
    for (recipient, expected) in [("a@x", "two@y"), ("a", "two@y"), ("b@x", "two@y"), ("c@x", "one@y")] {
        assert_eq!(goes_on(&stage, &[recipient]), expected, "{recipient}");
    }
}

// Req: S4
#[test]
fn a_section_that_is_wrong_is_refused() {
    let path = file("a: b\nc: |sh\n").display().to_string();
    for (options, clause) in [
        ("", "[stage-x] MAPS: is missing"),
        ("MAPS = aliases", "[stage-x] MAPS: \"aliases\" is neither an absolute path nor table:NAME"),
        ("MAPS = table:", "[stage-x] MAPS: a table has no name"),
        ("MAPS = /nonexistent/aliases", "/nonexistent/aliases:0: cannot read it"),
        (&format!("MAPS = {path}"), &format!("{path}:2: \"|sh\" runs a program")),
        ("MAPS = table:a\nLOCAL_DOMAINS = a..b", "[stage-x] LOCAL_DOMAINS: \"a..b\" has an empty label"),
        ("MAPS = table:a\nRECIPIENT_DELIMITER = ab", "[stage-x] RECIPIENT_DELIMITER: \"ab\" is not one"),
        ("MAPS = table:a\nRECIPIENT_DELIMITER = a", "[stage-x] RECIPIENT_DELIMITER: \"a\" is not one"),
        ("MAPS = table:a\nRECIPIENT_DELIMITER = @", "[stage-x] RECIPIENT_DELIMITER: \"@\" is not one"),
        ("MAPS = table:a\nCASE_SENSITIVE = maybe", "[stage-x] CASE_SENSITIVE: "),
        ("MAPS = table:a\nNEXT_STAGE =", "[stage-x] NEXT_STAGE: is empty"),
    ] {
        let error = read(options).unwrap_err().to_string();
        assert!(error.contains(clause), "{options}: {error}");
    }
}
