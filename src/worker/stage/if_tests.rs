//! Conditions over ordinary and odd messages, and sections that are refused.

use super::*;
use crate::proto::conf::{Conf, Sources};
use crate::worker::fixture::{self, Move, Row};
use serde_json::json;

fn conf(options: &str) -> Conf {
    let text = format!("[stage-x]\nPROGRAM = pepsi-stage-if\n{options}\n");
    let sources = Sources { variable: &|_| None, inline: &|_| Err("none".into()) };
    Conf::parse("test.conf", &text, &sources).unwrap()
}

fn read(options: &str) -> Result<If, ConfError> {
    let conf = conf(&format!("NEXT_STAGE = else\nTHEN_STAGE = Then\n{options}"));
    If::read(&conf.section("stage-x").unwrap())
}

/// Where the message goes under these options: `then` or `else`.
fn way(options: &str, row: Row) -> bool {
    let mut route = fixture::route("x");
    route.next = Some("else".into());
    let outcome = read(options)
        .unwrap()
        .run(fixture::context(row, route), &mut fixture::Unconnected)
        .unwrap()
        .into_outcome();
    match outcome.to {
        Move::Advance { stage } if stage == "then" => true,
        Move::Advance { stage } if stage == "else" => false,
        Move::Advance { .. } | Move::Pause { .. } | Move::Fail | Move::Finish | Move::Stay => {
            panic!("{outcome:?}")
        }
    }
}

fn holds(field: &str, operator: &str, row: &Row) -> bool {
    let plain = way(&format!("FIELD = {field}\n{operator}"), row.clone());
    let negated = way(&format!("FIELD = {field}\n{operator}\nNEGATE = yes"), row.clone());
    assert_ne!(plain, negated, "{field} {operator}");
    plain
}

#[test]
fn texts_are_compared_in_any_case() {
    let row = fixture::row(1);
    for (operator, expected) in [
        ("EQUALS = ANN@example.ORG", true),
        ("EQUALS = ann@example.or", false),
        ("CONTAINS = @EXAMPLE", true),
        ("CONTAINS = @@", false),
        ("PREFIX = Ann@", true),
        ("PREFIX = nn@", false),
        ("SUFFIX = .ORG", true),
        ("SUFFIX = .or", false),
        ("GLOB = a*@*.or?", true),
        ("GLOB = a*@", false),
        ("PRESENT = yes", true),
        ("PRESENT = no", false),
    ] {
        assert_eq!(holds("mail_from", operator, &row), expected, "{operator}");
    }
    assert!(holds("subject", "EQUALS = GRÜSSE", &row) == ("Grüße".to_lowercase() == "GRÜSSE".to_lowercase()));
    assert!(holds("subject", "EQUALS = GRÜßE", &row));
    assert!(!holds("mail_from", "EQUALS = ANN@example.org\nCASE_SENSITIVE = yes", &row));
    assert!(holds("header_from", "CONTAINS = Ann <\nCASE_SENSITIVE = yes", &row));
}

#[test]
fn any_recipient_is_enough() {
    let mut row = fixture::row(1);
    row.rcpt_to = vec!["a@x".into(), "b@y".into()];
    assert!(holds("rcpt_to", "SUFFIX = @y", &row));
    assert!(!holds("rcpt_to", "SUFFIX = @z", &row));
    row.rcpt_to.clear();
    assert!(!holds("rcpt_to", "GLOB = *", &row));
    assert!(holds("rcpt_to", "PRESENT = no", &row));
}

#[test]
fn what_is_not_there_holds_for_nothing_but_its_absence() {
    let mut row = fixture::row(1);
    row.subject = None;
    row.state = json!({ "null": null });
    for field in ["subject", "state.a", "state.a.b.c", "state.null", "state.null.x"] {
        for operator in ["EQUALS =", "CONTAINS =", "PREFIX =", "SUFFIX =", "GLOB = *", "PRESENT = yes"] {
            assert!(!holds(field, operator, &row), "{field} {operator}");
        }
        assert!(holds(field, "PRESENT = no", &row), "{field}");
    }
    assert!(!holds("state.a", "LESS = 1", &row));
    assert!(!holds("state.a", "MORE = -1", &row));
}

#[test]
fn the_null_sender_is_empty_and_not_present() {
    let mut row = fixture::row(1);
    row.mail_from.clear();
    assert!(holds("mail_from", "EQUALS =", &row));
    assert!(holds("mail_from", "PRESENT = no", &row));
    assert!(holds("mail_from", "GLOB = *", &row));
    assert!(!holds("mail_from", "GLOB = ?*", &row));
}

#[test]
fn numbers_are_compared_by_value() {
    let mut row = fixture::row(1);
    row.size = 10_000;
    row.state = json!({
        "big": 9_007_199_254_740_993_i64, "half": 2.5, "text": "17", "word": "many", "yes": true, "zero": -0.0,
    });
    for (field, operator, expected) in [
        ("size", "LESS = 10001", true),
        ("size", "LESS = 10000", false),
        ("size", "MORE = 9999.5", true),
        ("size", "MORE = 10000", false),
        ("size", "EQUALS = 10000", true),
        ("size", "EQUALS = 1e4", true),
        ("size", "PREFIX = 100", true),
        ("size", "PRESENT = yes", true),
        ("state.big", "MORE = 9007199254740992", true),
        ("state.big", "LESS = 9007199254740992", false),
        ("state.half", "MORE = 2", true),
        ("state.half", "LESS = 3", true),
        ("state.half", "EQUALS = 2.50", true),
        ("state.text", "MORE = 16", true),
        ("state.text", "EQUALS = 17.0", false),
        ("state.word", "MORE = -100000", false),
        ("state.word", "LESS = 100000", false),
        ("state.yes", "MORE = 0", false),
        ("state.yes", "EQUALS = TRUE", true),
        ("state.zero", "EQUALS = 0", true),
        ("state.zero", "LESS = 0", false),
    ] {
        assert_eq!(holds(field, operator, &row), expected, "{field} {operator}");
    }
}

#[test]
fn paths_lead_into_objects_and_arrays() {
    let mut row = fixture::row(1);
    row.state = json!({ "a": { "b": [ { "c": "deep" }, "second" ], "": 1, "0": "zero" }, "list": [1, "x"] });
    for (path, operator, expected) in [
        ("a.b.0.c", "EQUALS = deep", true),
        ("a.b.1", "EQUALS = second", true),
        ("a.b.2", "PRESENT = yes", false),
        ("a.b.-1", "PRESENT = yes", false),
        ("a.b.01.c", "PRESENT = yes", false),
        ("a.b.x", "PRESENT = yes", false),
        ("a.0", "EQUALS = zero", true),
        ("A.b", "PRESENT = yes", false),
        ("list", "EQUALS = [1,\"x\"]", true),
        ("a.b", "CONTAINS = deep", true),
        ("list.99999999999999999999", "PRESENT = yes", false),
    ] {
        assert_eq!(holds(&format!("state.{path}"), operator, &row), expected, "{path} {operator}");
    }
}

#[test]
fn a_state_that_is_no_object_has_nothing() {
    for state in [json!([1]), json!("x"), json!(null), json!(5)] {
        let mut row = fixture::row(1);
        row.state = state;
        assert!(holds("state.0", "PRESENT = no", &row));
    }
}

/// What a glob means, written as plainly as it can be.
fn plain_glob(pattern: &[char], text: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('*', rest)) => (0..=text.len()).any(|skip| plain_glob(rest, &text[skip..])),
        Some((c, rest)) => {
            text.split_first().is_some_and(|(t, more)| (*c == '?' || c == t) && plain_glob(rest, more))
        }
    }
}

#[test]
fn globs_agree_with_their_meaning_on_all_short_ones() {
    fn words(letters: &[char], length: usize) -> Vec<Vec<char>> {
        if length == 0 {
            return vec![Vec::new()];
        }
        let shorter = words(letters, length - 1);
        let longest = shorter.iter().filter(|word| word.len() == length - 1);
        let grown: Vec<Vec<char>> = longest
            .flat_map(|word| letters.iter().map(|c| word.iter().copied().chain([*c]).collect()))
            .collect();
        shorter.into_iter().chain(grown).collect()
    }
    for pattern in words(&['a', 'b', '*', '?'], 5) {
        for text in words(&['a', 'b'], 5) {
            let string: String = text.iter().collect();
            assert_eq!(matches_glob(&pattern, &string), plain_glob(&pattern, &text), "{pattern:?} {text:?}");
        }
    }
}

#[test]
fn a_hostile_subject_does_not_make_a_glob_slow() {
    let pattern: Vec<char> = "*a".repeat(50).chars().chain(['b']).collect();
    assert!(!matches_glob(&pattern, &"a".repeat(20_000)));
    assert!(matches_glob(&['*', '?', 'é'], "xxé"));
}

// Req: S4
#[test]
fn bad_sections_are_refused_by_name() {
    for (options, word) in [
        ("EQUALS = x", "FIELD"),
        ("FIELD = mail\nEQUALS = x", "FIELD"),
        ("FIELD = state\nEQUALS = x", "FIELD"),
        ("FIELD = state.\nEQUALS = x", "FIELD"),
        ("FIELD = state.a..b\nEQUALS = x", "FIELD"),
        ("FIELD = subject", "exactly one"),
        ("FIELD = subject\nEQUALS = x\nPREFIX = y", "exactly one"),
        ("FIELD = size\nLESS = ten", "LESS"),
        ("FIELD = size\nMORE = inf", "MORE"),
        ("FIELD = size\nMORE = 10k", "MORE"),
        ("FIELD = size\nMORE = 1e999", "MORE"),
        ("FIELD = subject\nMORE = 1", "MORE"),
        ("FIELD = subject\nPRESENT = perhaps", "PRESENT"),
        ("FIELD = subject\nEQUALS = x\nNEGATE = perhaps", "NEGATE"),
        ("FIELD = subject\nEQUALS = x\nCASE_SENSITIVE = 2", "CASE_SENSITIVE"),
    ] {
        let error = read(options).unwrap_err().to_string();
        assert!(error.contains(word) && error.starts_with("test.conf:"), "{options}: {error}");
    }
    for (options, word) in [("THEN_STAGE = t", "NEXT_STAGE"), ("NEXT_STAGE = n", "THEN_STAGE")] {
        let conf = conf(&format!("FIELD = size\nMORE = 1\n{options}"));
        let error = If::read(&conf.section("stage-x").unwrap()).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}
