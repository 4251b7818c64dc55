//! Setters, terminals and what they come to as one statement.

use super::*;
use crate::worker::fixture;
use serde_json::json;

fn message() -> Context {
    let mut row = fixture::row(1);
    row.state = json!({ "dsn": { "envid": "e", "rcpt": [1, 2, 3] }, "kept": true });
    row.rcpt_to = vec!["a@x".into(), "b@x".into(), "c@x".into()];
    let mut route = fixture::route("relay");
    route.next = Some("archive".into());
    fixture::context(row, route)
}

fn to(stage: &str) -> Move {
    Move::Advance { stage: stage.into() }
}

// Req: A2
#[test]
fn each_terminal_is_one_move() {
    let untouched = |outcome: Outcome| {
        assert_eq!((outcome.content, outcome.merge), (Content::default(), json!({})));
        outcome.to
    };
    assert_eq!(untouched(message().advance().unwrap().into_outcome()), to("archive"));
    assert_eq!(untouched(message().advance_to("x").into_outcome()), to("x"));
    assert_eq!(untouched(message().finish().into_outcome()), Move::Finish);
    assert_eq!(untouched(message().advance_or_finish().into_outcome()), to("archive"));
    let last = fixture::context(fixture::row(1), fixture::route("relay"));
    assert_eq!(untouched(last.advance_or_finish().into_outcome()), Move::Finish);

    let outcome = message().reroute("bounce", json!({ "bounce": 1 })).into_outcome();
    assert_eq!((outcome.to, outcome.merge), (to("bounce"), json!({ "bounce": 1 })));
    let outcome = message().fail(json!({ "why": "x" })).into_outcome();
    assert_eq!((outcome.to, outcome.merge), (Move::Fail, json!({ "why": "x" })));
    let outcome = message().pause(json!({}), Duration::from_millis(1500)).into_outcome();
    assert_eq!(outcome.to, Move::Pause { pause_us: 1_500_000 });
    let outcome = message().pause(json!({}), Duration::MAX).into_outcome();
    assert_eq!(outcome.to, Move::Pause { pause_us: 366 * 86_400 * 1_000_000 });
}

// Req: S4
#[test]
fn going_on_without_a_next_stage_is_an_error_and_no_panic() {
    let last = || fixture::context(fixture::row(1), fixture::route("relay"));
    assert!(last().advance().unwrap_err().text.contains("NEXT_STAGE"));
    assert!(last().rewrite_recipients(vec!["z@x".into()], json!({})).is_err());
}

// Req: A3
#[test]
fn an_outcome_holds_the_touched_columns_alone() {
    let mut message = message();
    message.set_headers(b"From: New <n@x>\r\nSubject: new\r\n".to_vec()).unwrap();
    message.set_mail_from("n@x".into());
    let content = message.finish().into_outcome().content;
    assert_eq!(content.headers.as_deref(), Some(&b"From: New <n@x>\r\nSubject: new\r\n"[..]));
    assert_eq!(content.header_from, Some(Some("New <n@x>".into())));
    assert_eq!(content.subject, Some(Some("new".into())));
    assert_eq!(content.mail_from, Some("n@x".into()));
    assert_eq!((content.rcpt_to, content.body), (None, None));

    let mut message = self::message();
    message.set_body(None).unwrap();
    message.set_headers(b"X: y\r\n".to_vec()).unwrap();
    let content = message.finish().into_outcome().content;
    assert_eq!((content.body, content.subject, content.header_from), (Some(None), Some(None), Some(None)));
}

// Req: A8
#[test]
fn the_size_follows_a_rewrite() {
    let mut row = fixture::row(1);
    let raw = |headers: &[u8], body: Option<&[u8]>| {
        i64::try_from(headers.len() + body.map_or(0, |body| 2 + body.len())).unwrap()
    };
    row.size = raw(row.headers.as_deref().unwrap(), row.body.as_deref());
    let mut message = fixture::context(row, fixture::route("relay"));
    for body in [None, Some(&b""[..]), Some(b"abc"), None] {
        message.set_body(body.map(<[u8]>::to_vec)).unwrap();
        assert_eq!(message.size(), raw(b"Subject: x\r\n", body));
    }
    message.set_headers(Vec::new()).unwrap();
    assert_eq!(message.size(), 0);
}

// Req: A1
#[test]
fn what_was_not_loaded_cannot_be_read_or_replaced() {
    let with = |load| Context::new(fixture::row(1), load, Rc::new(fixture::route("relay")));
    assert!(with(Load::Metadata).headers().is_err() && with(Load::Metadata).body().is_err());
    assert!(with(Load::Headers).headers().is_ok() && with(Load::Headers).body().is_err());
    assert!(with(Load::Full).headers().is_ok() && with(Load::Full).body().is_ok());
    assert!(with(Load::Metadata).set_headers(Vec::new()).is_err());
    assert!(with(Load::Headers).set_body(None).is_err());
}

// Req: A4
#[test]
fn state_is_merged_key_by_key() {
    let mut message = message();
    message.merge_state(json!({ "a": { "b": [1] }, "kept": 1 }));
    message.set_state("c", json!("x"));
    assert_eq!(message.state()["kept"], 1);
    assert_eq!(message.state()["dsn"]["envid"], "e");
    let outcome = message.reroute("x", json!({ "d": null })).into_outcome();
    assert_eq!(outcome.merge, json!({ "a": { "b": [1] }, "kept": 1, "c": "x", "d": null }));
}

// Req: A4
#[test]
fn kept_recipients_keep_their_dsn_entries() {
    let mut message = message();
    message.keep_recipients(&[0, 2]);
    let outcome = message.finish().into_outcome();
    assert_eq!(outcome.content.rcpt_to, Some(vec!["a@x".into(), "c@x".into()]));
    assert_eq!(outcome.merge, json!({ "dsn": { "envid": "e", "rcpt": [1, 3] } }));
    let mut message = self::message();
    message.keep_recipients(&[0, 1, 2]);
    assert_eq!(message.finish().into_outcome().content, Content::default());
    for dsn in [json!(null), json!([1]), json!({ "rcpt": [1] }), json!({ "rcpt": "x" })] {
        let mut message = self::message();
        message.set_state("dsn", dsn.clone());
        message.keep_recipients(&[1]);
        assert_eq!(message.rcpt_to(), ["b@x"]);
        assert_eq!(message.state()["dsn"], dsn);
    }
}

#[test]
fn an_error_keeps_what_it_was_given_and_nothing_else() {
    let mut message = message();
    message.keep_recipients(&[1]);
    let error = message.stop(StageError::host("later"));
    assert_eq!((error.text.as_str(), error.is_permanent), ("later", false));
    let kept = error.into_kept();
    assert_eq!(kept.content.rcpt_to, Some(vec!["b@x".into()]));
    assert_eq!(kept.merge["dsn"]["rcpt"], json!([2]));
    let nothing = Kept { content: Content::default(), merge: json!({}), fan: Fan::default() };
    assert_eq!(StageError::host("x").into_kept(), nothing);
}
