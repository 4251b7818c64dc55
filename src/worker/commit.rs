//! What is written for each way a stage can end, and the one statement that writes it.
//!
//! A concluded message is written as its terminal says. An error is a host fault, and the message waits at its stage
//! for 1, 2, 4 … 60 minutes (requirement S1) until MAX_LIFETIME has passed (S2), or it is permanent, and the message
//! fails (S3). All of that is decided here without a clock, from the row as it was loaded; the runtime does the writing.

use super::context::{Outcome, Route};
use super::error::{Kept, StageError};
use super::tables::Tables;
use crate::proto::text;
use crate::sql::batch::Write;
use crate::sql::queue::Held;
use crate::sql::row::{Load, Move, Row};
use crate::sql::{Db, Error};
use serde_json::{Map, Value, json};
use std::rc::Rc;
use std::time::Duration;

/// As much of an error's text as the state keeps.
const MAX_ERROR: usize = 2000;
/// The pauses of S1 double from one minute up to an hour.
const FIRST_RETRY: Duration = Duration::from_secs(60);
const DOUBLINGS: u64 = 6;
const LAST_RETRY: Duration = Duration::from_secs(3600);
/// `state.failure_class` of what was retried for as long as it may be.
const EXHAUSTED: &str = "retries-exhausted";
/// What a sender is told of a host fault that outlived the message: nothing of the host's own matters (S5).
const GIVEN_UP: &str = "The message could not be handled in the time that it may wait.";

/// The table of messages as a worker uses it. `Db` is the real one.
pub trait Store {
    fn load(&mut self, id: i64, load: Load) -> Result<Option<Row>, Error>;
    /// False when the claim is gone; then nothing was written.
    fn commit(&mut self, head: &Head, outcome: &Outcome) -> Result<bool, Error>;
    /// Metadata of several rows, in any order, without those that are not there.
    fn load_batch(&mut self, ids: &[i64]) -> Result<Vec<Row>, Error>;
    /// Outcomes of different rows, each as `commit` does it.
    fn commit_batch(&mut self, outcomes: &[(&Head, &Outcome)]) -> Vec<Result<bool, Error>>;
    /// What stages may ask.
    fn tables(&mut self) -> &mut dyn Tables;
}

impl Store for Db {
    fn load(&mut self, id: i64, load: Load) -> Result<Option<Row>, Error> {
        Db::load(self, id, load)
    }

    fn commit(&mut self, head: &Head, outcome: &Outcome) -> Result<bool, Error> {
        Db::commit_one(self, &write(head, outcome))
    }

    fn load_batch(&mut self, ids: &[i64]) -> Result<Vec<Row>, Error> {
        Db::load_some(self, ids, Load::Metadata)
    }

    fn commit_batch(&mut self, outcomes: &[(&Head, &Outcome)]) -> Vec<Result<bool, Error>> {
        let writes: Vec<Write<'_>> = outcomes.iter().map(|&(head, outcome)| write(head, outcome)).collect();
        Db::commit_batch(self, &writes)
    }

    fn tables(&mut self) -> &mut dyn Tables {
        self
    }
}

fn write<'a>(head: &Head, outcome: &'a Outcome) -> Write<'a> {
    let Outcome { content, merge, to, fan } = outcome;
    Write { row: head.held(), content, merge, to, fan }
}

/// What has to be known of a message after its stage has consumed it.
#[derive(Clone, Debug)]
pub struct Head {
    pub id: i64,
    /// The claim that every write is fenced by (D4).
    pub claim: i64,
    pub route: Rc<Route>,
    /// Envelope sender and recipients in short, for the log line that says where a message went.
    pub from: String,
    pub to: String,
    /// Host faults so far at this stage.
    failures: u64,
    /// Since arrival, by the database's clock.
    age: Duration,
    /// It has come here since it could not be handled in its lifetime elsewhere.
    is_given_up: bool,
}

impl Head {
    /// The same message at the next stage of its pass, where `state` is what it has.
    pub fn moved(self, state: &Map<String, Value>, route: Rc<Route>) -> Head {
        let failures = failures(state.get("temporary_failures"));
        Head { failures, is_given_up: is_given_up(state.get("failure_class")), route, ..self }
    }

    fn held(&self) -> Held {
        Held { id: self.id, claim: self.claim }
    }

    pub fn new(row: &Row, route: Rc<Route>) -> Head {
        let failures = failures(row.state.get("temporary_failures"));
        let age_us = row.now_us.saturating_sub(row.received_at_us);
        let age = Duration::from_micros(u64::try_from(age_us).unwrap_or(0));
        let to = match row.rcpt_to.as_slice() {
            [] => String::new(),
            [only] => only.clone(),
            [first, more @ ..] => format!("{first} +{}", more.len()),
        };
        let is_given_up = is_given_up(row.state.get("failure_class"));
        let from = format!("<{}>", row.mail_from);
        Head { id: row.id, claim: row.claim, route, from, to, failures, age, is_given_up }
    }
}

fn failures(recorded: Option<&Value>) -> u64 {
    recorded.and_then(Value::as_u64).unwrap_or(0)
}

fn is_given_up(class: Option<&Value>) -> bool {
    class.is_some_and(|class| class == EXHAUSTED)
}

/// What becomes of a message whose stage returned `error`.
pub fn after_error(error: StageError, head: &Head) -> Outcome {
    let route = &head.route;
    let has_time = head.age <= route.max_lifetime;
    let is_permanent = error.is_permanent;
    let last_error = text::for_database(error.text.as_bytes(), MAX_ERROR);
    let Kept { content, mut merge, fan } = error.into_kept();
    merge["last_error"] = json!(last_error);
    if !is_permanent && has_time {
        merge["temporary_failures"] = json!(head.failures.saturating_add(1));
        let pause = retry_pause(head.failures, head.id);
        let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        return Outcome { content, merge, to: Move::Pause { pause_us }, fan };
    }
    merge["failed_stage"] = json!(route.stage);
    merge["failure_class"] = json!(if is_permanent { "permanent" } else { EXHAUSTED });
    // Given up a second time, it would go round between bounce stages for ever.
    let to = match route.bounce.as_ref().filter(|_| !is_permanent && !head.is_given_up) {
        Some(stage) => {
            merge["bounce"] = json!({ "kind": "permanent", "diagnostic": GIVEN_UP });
            Move::Advance { stage: stage.clone() }
        }
        None => Move::Fail,
    };
    Outcome { content, merge, to, fan }
}

/// 1, 2, 4 … 60 minutes and up to a quarter more, so that messages deferred together do not return together (E8). The
/// share comes from the id and the count: spread over messages and tries, and the same whenever it is worked out.
fn retry_pause(failures: u64, id: i64) -> Duration {
    let doublings = u32::try_from(failures.min(DOUBLINGS)).unwrap_or(0);
    let pause = (FIRST_RETRY * 2u32.pow(doublings)).min(LAST_RETRY);
    // The multiplier is 2^64 over the golden ratio: consecutive numbers land far apart (Knuth, volume 3, section 6.4).
    let mixed = (id.unsigned_abs().rotate_left(8) ^ failures).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let share = u32::try_from(mixed >> 48).unwrap_or(0);
    pause + pause / 4 * share / (1 << 16)
}

/// The status line for a message that went that way (E1, R3): what ends in `failed` is not 0.
pub fn status(to: &Move) -> u8 {
    match to {
        Move::Advance { .. } | Move::Pause { .. } | Move::Finish | Move::Stay => 0,
        Move::Fail => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::fixture;

    fn head(state: Value, age: Duration, bounce: Option<&str>) -> Head {
        let mut row = fixture::row(7);
        row.state = state;
        row.now_us = row.received_at_us + i64::try_from(age.as_micros()).unwrap();
        let mut route = fixture::route("relay");
        route.bounce = bounce.map(str::to_owned);
        Head::new(&row, Rc::new(route))
    }

    fn pause_of(outcome: &Outcome) -> Duration {
        match outcome.to {
            Move::Pause { pause_us } => Duration::from_micros(pause_us),
            _ => panic!("{outcome:?}"),
        }
    }

    // Req: S1, E8
    #[test]
    fn a_host_fault_waits_longer_each_time() {
        for (failures, minutes) in [(0, 1), (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 60), (70, 60)] {
            let head =
                head(json!({ "temporary_failures": failures }), Duration::from_secs(60), Some("bounce"));
            let outcome = after_error(StageError::host("no\0t now"), &head);
            let expected = Duration::from_secs(minutes * 60);
            let pause = pause_of(&outcome);
            assert!(pause >= expected && pause <= expected * 5 / 4, "{failures}: {pause:?}");
            assert_eq!(outcome.merge, json!({ "last_error": "not now", "temporary_failures": failures + 1 }));
            assert_eq!(status(&outcome.to), 0);
        }
        let odd = head(json!({ "temporary_failures": "many" }), Duration::ZERO, None);
        assert_eq!(after_error(StageError::host("x"), &odd).merge["temporary_failures"], 1);
    }

    // Req: E8
    #[test]
    fn pauses_of_neighbours_are_spread() {
        let mut pauses: Vec<Duration> = (1..=1000).map(|id| retry_pause(0, id)).collect();
        pauses.sort();
        for (tenth, pause) in pauses.iter().step_by(100).enumerate() {
            let expected = 60.0 + 1.5 * tenth as f64;
            assert!((pause.as_secs_f64() - expected).abs() < 0.5, "{tenth}: {pause:?}");
        }
    }

    // Req: S2, S5
    #[test]
    fn a_message_past_its_lifetime_bounces_or_fails() {
        let old = Duration::from_secs(120 * 3600 + 1);
        let outcome = after_error(StageError::host("/etc/secret"), &head(json!({}), old, Some("bounce")));
        assert_eq!(outcome.to, Move::Advance { stage: "bounce".into() });
        assert_eq!(outcome.merge["failure_class"], "retries-exhausted");
        assert_eq!(outcome.merge["failed_stage"], "relay");
        assert_eq!(outcome.merge["last_error"], "/etc/secret");
        assert!(!outcome.merge["bounce"].to_string().contains("secret"));
        assert_eq!(status(&outcome.to), 0);
        let outcome = after_error(StageError::host("x"), &head(json!({}), old, None));
        assert_eq!((&outcome.to, status(&outcome.to)), (&Move::Fail, 1));
        let given_up = json!({ "failure_class": "retries-exhausted" });
        let outcome = after_error(StageError::host("x"), &head(given_up, old, Some("bounce")));
        assert_eq!(outcome.to, Move::Fail, "it came from a stage that gave it up");
        let young = head(json!({}), Duration::from_secs(120 * 3600), None);
        pause_of(&after_error(StageError::host("x"), &young));
    }

    // Req: S3
    #[test]
    fn a_permanent_error_fails_at_once_whatever_the_bounce_stage() {
        let outcome = after_error(
            StageError::host("bad").permanent(),
            &head(json!({}), Duration::ZERO, Some("bounce")),
        );
        assert_eq!(outcome.to, Move::Fail);
        assert_eq!(
            outcome.merge,
            json!({ "last_error": "bad", "failed_stage": "relay", "failure_class": "permanent" })
        );
    }

    #[test]
    fn an_arrival_in_the_future_is_young() {
        let mut row = fixture::row(7);
        row.now_us = row.received_at_us - 1_000_000;
        assert_eq!(Head::new(&row, Rc::new(fixture::route("relay"))).age, Duration::ZERO);
    }
}
