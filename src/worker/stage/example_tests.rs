//! The stage of docs/writing-a-stage.md, compiled and run as it stands there.

use super::loop_guard::KIND;
use super::{Done, StageError};
use crate::proto::conf::{Conf, Sources};
use crate::worker::context::Outcome;
use crate::worker::fixture::{self, Move};

fn run(options: &str, headers: &[u8]) -> Result<Result<Outcome, StageError>, String> {
    let text = format!("[stage-guard]\nPROGRAM = {}\n{options}\n", KIND.program);
    let nothing = |_: &str| Err("no file".to_owned());
    let conf = Conf::parse("f.conf", &text, &Sources { variable: &|_| None, inline: &nothing }).unwrap();
    let stage = (KIND.check)(&conf.section("stage-guard").unwrap()).map_err(|error| error.to_string())?;
    let mut row = fixture::row(1);
    row.headers = Some(headers.to_vec());
    let mut route = fixture::route("guard");
    route.next = Some("deliver".into());
    let done = stage.run(fixture::context(row, route), &mut fixture::Unconnected);
    Ok(done.map(Done::into_outcome))
}

#[test]
fn the_stage_of_the_tutorial_marks_a_message_once() {
    let options = "MARK = here@example.org\nNEXT_STAGE = deliver";
    let outcome = run(options, b"X-Loop: elsewhere\r\nSubject: x\r\n").unwrap().unwrap();
    assert_eq!(outcome.to, Move::Advance { stage: "deliver".into() });
    let marked = outcome.content.headers.unwrap();
    assert_eq!(marked, b"X-Loop: here@example.org\r\nX-Loop: elsewhere\r\nSubject: x\r\n");
    let error = run(options, &marked).unwrap().unwrap_err();
    assert!(error.is_permanent && error.text.contains("here@example.org"), "{error:?}");
    let folded = run(options, b"x-loop:\r\n  here@example.org \r\n").unwrap();
    assert!(folded.is_err());
}

// Req: S4
#[test]
fn the_stage_of_the_tutorial_checks_its_section() {
    for (options, error) in [
        ("NEXT_STAGE = deliver", "f.conf:1: [stage-guard] MARK: is missing"),
        ("MARK = a b\nNEXT_STAGE = deliver", "f.conf:3: [stage-guard] MARK: is not one word of ASCII"),
        ("MARK = a", "f.conf:1: [stage-guard] NEXT_STAGE: is missing"),
    ] {
        assert_eq!(run(options, b"").unwrap_err(), error);
    }
    let text = include_str!("../../../docs/examples/loop_guard.rs");
    assert!(text.lines().count() < 60);
}
