//! What fan-outs leave on the row and beside it.

use super::*;
use crate::worker::context::Outcome;
use crate::worker::error::StageError;
use crate::worker::fixture::{self, Move, Row};

fn message() -> Context {
    let entry = |n: u64| json!({ "notify": if n == 1 { "SUCCESS,DELAY" } else { "NEVER" }, "orcpt": n });
    let state = json!({ "dsn": { "ret": "HDRS", "rcpt": [entry(0), entry(1), entry(2)] }, "other": 1 });
    let rcpt_to = ["a@x", "b@x", "c@y"].map(str::to_owned).to_vec();
    let mut route = fixture::route("relay");
    route.bounce = Some("bounce".into());
    fixture::context(Row { state, rcpt_to, ..fixture::row(7) }, route)
}

/// The recipients' numbers, as their entries of `state.dsn` have them.
fn numbers(state: &Value) -> Vec<u64> {
    let entries = state["dsn"]["rcpt"].as_array().expect("entries");
    entries.iter().map(|entry| entry["orcpt"].as_u64().expect("a number")).collect()
}

fn outcome(done: Done) -> Outcome {
    done.checked().expect("nothing is rewritten").into_outcome()
}

// Req: A5
#[test]
fn what_is_split_off_leaves_and_the_rest_stays() {
    let mut message = message();
    message.split_off_recipients(&[0, 2], "remote", json!({ "why": "far" }));
    assert_eq!(message.rcpt_to(), ["b@x"]);
    let outcome = outcome(message.advance_to("local"));
    let [group] = &outcome.fan.groups[..] else { panic!("{outcome:?}") };
    assert_eq!(
        (&group.rcpt_to[..], group.stage.as_deref()),
        (&["a@x".to_owned(), "c@y".to_owned()][..], Some("remote"))
    );
    assert_eq!(
        (numbers(&group.state), &group.state["why"], &group.state["dsn"]["ret"]),
        (vec![0, 2], &json!("far"), &json!("HDRS"))
    );
    assert_eq!((outcome.content.rcpt_to, numbers(&outcome.merge)), (Some(vec!["b@x".into()]), vec![1]));
    assert_eq!(
        (outcome.to, group.status, group.is_fresh),
        (Move::Advance { stage: "local".into() }, GroupStatus::Pending, false)
    );
}

// Req: A5
#[test]
fn each_recipient_gets_a_row_of_its_own() {
    let mut message = message();
    message.split_to_one_per_row();
    let outcome = outcome(message.finish());
    let rows: Vec<_> =
        outcome.fan.groups.iter().map(|group| (group.rcpt_to.join(" "), numbers(&group.state))).collect();
    assert_eq!(rows, [("b@x".into(), vec![1]), ("c@y".into(), vec![2])]);
    assert!(outcome.fan.groups.iter().all(|group| group.stage.is_none()));
    assert_eq!(outcome.content.rcpt_to, Some(vec!["a@x".into()]));

    let mut alone = fixture::context(fixture::row(1), fixture::route("relay"));
    alone.split_to_one_per_row();
    assert!(alone.finish().into_outcome().fan.is_empty());
}

// Req: A5
#[test]
fn whoever_rewrites_the_message_leaves_no_rows_beside_it() {
    let rewrites: [fn(&mut Context); 3] = [
        |message| message.set_mail_from("other@x".into()),
        |message| message.set_headers(b"X: 1\r\n".to_vec()).unwrap(),
        |message| message.set_body(None).unwrap(),
    ];
    for rewrite in rewrites {
        for is_first in [true, false] {
            let mut torn = message();
            if is_first {
                rewrite(&mut torn);
            }
            torn.split_to_one_per_row();
            if !is_first {
                rewrite(&mut torn);
            }
            assert!(!torn.finish().checked().unwrap_err().is_permanent);
        }
        let mut torn = message();
        torn.split_to_one_per_row();
        rewrite(&mut torn);
        // Not even the recipients that are left: those that were split off would be lost.
        assert_eq!(torn.stop(StageError::host("x")), StageError::host("x"));
    }
    let mut message = message();
    message.split_to_one_per_row();
    message.set_rcpt_to(vec!["new@z".into()]);
    message.set_state("dsn", json!({}));
    let stopped = message.stop(StageError::host("x"));
    assert!(stopped.has_fanned_out());
    let kept = stopped.into_kept();
    assert_eq!((kept.content.rcpt_to, kept.fan.groups.len()), (Some(vec!["new@z".into()]), 2));
}

// Req: A2, A6
#[test]
fn a_row_that_waits_or_ends_may_leave_clones() {
    let mut clone = message().group_of(&[1]);
    clone.token = Some("delay/7".into());
    let outcome = outcome(message().pause_with(
        json!({ "delay_sent": true }),
        Duration::from_secs(3),
        &[2],
        vec![clone.clone()],
    ));
    assert_eq!(
        (outcome.to, outcome.content.rcpt_to),
        (Move::Pause { pause_us: 3_000_000 }, Some(vec!["c@y".into()]))
    );
    assert_eq!(
        (outcome.fan.groups, numbers(&outcome.merge), &outcome.merge["delay_sent"]),
        (vec![clone.clone()], vec![2], &json!(true))
    );
    let outcome = super::tests::outcome(message().finish_with(vec![clone.clone()]));
    assert_eq!((outcome.to, outcome.fan.groups), (Move::Finish, vec![clone]));
}

// Req: A2
#[test]
fn success_is_told_to_those_who_asked_for_it() {
    let outcome = outcome(message().complete_success(true));
    let [report] = &outcome.fan.groups[..] else { panic!("{outcome:?}") };
    assert_eq!((&report.rcpt_to[..], report.stage.as_deref()), (&["b@x".to_owned()][..], Some("bounce")));
    assert_eq!((&report.state["bounce"]["kind"], numbers(&report.state)), (&json!("success"), vec![1]));
    assert_eq!((outcome.to, outcome.content.rcpt_to), (Move::Finish, None));
    assert!(message().complete_success(false).into_outcome().fan.is_empty());
    for dsn in
        [json!(null), json!({}), json!({ "rcpt": [] }), json!({ "rcpt": [1, "SUCCESS", { "notify": 3 }] })]
    {
        let mut odd = message();
        odd.set_state("dsn", dsn);
        assert!(odd.complete_success(true).into_outcome().fan.is_empty());
    }
}

#[test]
fn recipients_that_are_not_parallel_to_their_parameters_keep_them_as_they_are() {
    let mut odd = message();
    odd.set_state("dsn", json!({ "rcpt": [1] }));
    assert_eq!(odd.group_of(&[2, 9]), FanGroup::new(vec!["c@y".into()]));
}
