//! What is laid over a stage for whom, and how recipients are divided by it.

use super::*;
use crate::worker::context::Done;
use crate::worker::error::StageError;
use crate::worker::fixture::{self, Row};
use crate::worker::stage::Stage;
use crate::worker::tables::Tables;
use serde_json::json;
use std::rc::Rc;

struct Nothing;

impl Stage for Nothing {
    fn run(&self, message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
        Ok(message.finish())
    }
}

fn served(stage: &str) -> Served {
    let route = Rc::new(fixture::route(stage));
    let (options, personal) = (&["LEARN", "FIELD"], &["LEARN"]);
    Served { stage: Box::new(Nothing), route, load: fixture::Load::Metadata, options, personal }
}

fn message(to: &[&str], state: Value, settings: Value) -> Context {
    let rcpt_to = to.iter().map(|one| (*one).to_owned()).collect();
    let row = Row { rcpt_to, state, settings: Some(settings), ..fixture::row(1) };
    fixture::context(row, fixture::route("x"))
}

/// One line a group: its options and its places.
fn shown(message: &Context, stage: &str) -> Vec<String> {
    let show = |(overrides, places): &(Overrides, Vec<usize>)| {
        let all = overrides.iter().map(|(option, laid)| {
            format!("{option}={}{}", laid.value, if laid.is_owned { " (owner)" } else { "" })
        });
        format!("{} {places:?}", all.collect::<Vec<_>>().join(" "))
    };
    groups(message, &served(stage)).iter().map(show).collect()
}

// Req: X1
#[test]
fn an_administrators_word_for_one_address_goes_over_its_owners_and_that_over_the_domains() {
    let all = json!([
        ["address:ann@x.example", "Stage-X", "Learn", "3"],
        ["owner:ann@x.example", "stage-x", "LEARN", "2"],
        ["domain:x.example", "STAGE-x", "LEARN", "1"],
        ["domain:x.example", "stage-x", "FIELD", "all"],
        ["owner:bob@x.example", "stage-x", "LEARN", "${HOME}"],
        ["owner:bob@x.example", "stage-x", "FIELD", "not his"],
        ["owner:bob@x.example", "stage-y", "LEARN", "other stage"],
        ["domain:y.example", "stage-x", "LEARN", "other domain"],
        ["address:ann@x.example", "stage-x", "PROGRAM", "no option of its own"],
    ]);
    let message = message(&["Ann@X.example", "bob@x.example", "eve@x.example"], json!({}), all);
    assert_eq!(
        shown(&message, "x"),
        ["FIELD=all LEARN=3 [0]", "FIELD=all LEARN=${HOME} (owner) [1]", "FIELD=all LEARN=1 [2]"]
    );
    assert_eq!(shown(&message, "y"), [" [0, 2]", "LEARN=other stage (owner) [1]"]);
    assert_eq!(shown(&message, "z"), [" [0, 1, 2]"]);
}

// Req: X1
#[test]
fn a_message_of_local_origin_goes_by_its_sender() {
    let all = json!([
        ["owner:ann@example.org", "stage-x", "LEARN", "hers"],
        ["owner:b@x", "stage-x", "LEARN", "his"]
    ]);
    let to = ["b@x", "c@x"];
    assert_eq!(
        shown(&message(&to, json!({ "local_origin": true }), all.clone()), "x"),
        ["LEARN=hers (owner) [0, 1]"]
    );
    for other in [json!(false), json!("true"), json!(1), json!(null)] {
        let message = message(&to, json!({ "local_origin": other }), all.clone());
        assert_eq!(shown(&message, "x"), ["LEARN=his (owner) [0]", " [1]"]);
    }
}

// Req: X2
#[test]
fn recipients_of_equal_settings_stay_together_in_the_order_of_the_first() {
    let one = |of: &str, value: &str| json!([format!("owner:{of}"), "stage-x", "LEARN", value]);
    let all = json!([one("b@x", "1"), one("d@x", "1"), one("c@x", "2")]);
    let message = message(&["a@x", "b@x", "c@x", "d@x", "e@x"], json!({}), all);
    assert_eq!(shown(&message, "x"), [" [0, 4]", "LEARN=1 (owner) [1, 3]", "LEARN=2 (owner) [2]"]);
}

#[test]
fn without_recipients_or_with_odd_rows_there_is_one_group() {
    let odd = json!([
        1,
        [],
        ["owner:a@x"],
        ["a@x", "stage-x", "LEARN", "1"],
        ["owner:a@x", "x", "LEARN", "1"],
        ["owner:a@x", "stage-x", "LEARN", 1],
        ["global", "stage-x", "LEARN", "1"],
        null,
    ]);
    for found in [odd, json!({}), json!("x")] {
        assert_eq!(
            shown(&message(&["a@x", "@", "", "x@"], json!({}), found.clone()), "x"),
            [" [0, 1, 2, 3]"]
        );
        assert_eq!(shown(&message(&[], json!({}), found), "x"), [" []"]);
    }
}

// Req: U1, U4, X1
#[test]
fn a_pass_goes_on_only_where_the_settings_that_came_with_the_row_say_all() {
    let all = json!([["owner:b@x", "stage-x", "LEARN", "1"]]);
    let to = ["a@x", "b@x"];
    assert_eq!(in_pass(&message(&to, json!({}), all.clone()), &served("y")), Some(Overrides::new()));
    assert_eq!(in_pass(&message(&to, json!({}), all.clone()), &served("x")), None, "first it is divided");
    let mut fewer = message(&to, json!({}), all.clone());
    fewer.keep_recipients(&[1]);
    assert!(in_pass(&fewer, &served("x")).is_some_and(|overrides| overrides.contains_key("LEARN")));
    let mut other = message(&to, json!({}), all.clone());
    other.set_rcpt_to(vec!["new@x".into()]);
    assert_eq!(in_pass(&other, &served("y")), None, "nobody has looked up the new one's");
    let mut local = message(&to, json!({}), all);
    local.set_state("local_origin", json!(true));
    assert_eq!(in_pass(&local, &served("y")), None, "now its sender's count");
    let mut none = fixture::context(fixture::row(1), fixture::route("x"));
    none.set_rcpt_to(vec!["new@x".into()]);
    assert_eq!(in_pass(&none, &served("x")), Some(Overrides::new()), "nobody has set anything");
}
