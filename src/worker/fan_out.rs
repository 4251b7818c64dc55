//! Fan-outs of a message (requirements A5, A6): rows that it leaves beside it, made by the one stored function that writes where
//! the message itself goes. So there is no moment at which a recipient is on two rows, or on none.
//!
//! Invariants: such a row has the headers and body that lie in the database, so a stage that rewrites the sender, the headers or the
//! body leaves none (`runtime` refuses it as a host fault). `state.dsn.rcpt` goes with its recipients.

use super::context::{Context, Done};
pub use crate::sql::fan::{FanGroup, GroupStatus, SideMessage};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The whole contract stands here, whichever part of it the stages of this build use.
#[allow(dead_code)]
impl Context {
    /// The recipients at these places go to a row of their own, which waits at `stage`, with `state` laid over; the others stay.
    pub fn split_off_recipients(&mut self, places: &[usize], stage: &str, state: Value) {
        let mut group = self.group_of(places);
        group.stage = Some(stage.to_owned());
        lay_over(&mut group.state, state);
        let parting: BTreeSet<usize> = places.iter().copied().collect();
        let rest: Vec<usize> = (0..self.rcpt_to().len()).filter(|place| !parting.contains(place)).collect();
        self.fan_out(&rest, vec![group]);
    }

    /// Each recipient but the first goes to a row of its own, which waits at this stage.
    pub fn split_to_one_per_row(&mut self) {
        let groups = (1..self.rcpt_to().len()).map(|place| self.group_of(&[place])).collect();
        self.fan_out(&[0], groups);
    }

    /// Only the recipients at the places `keep` stay, and each group becomes a row.
    pub fn fan_out(&mut self, keep: &[usize], groups: Vec<FanGroup>) {
        self.keep_recipients(keep);
        self.fan.groups.extend(groups);
    }

    /// The recipients at these places, with their share of `state.dsn`.
    pub fn group_of(&self, places: &[usize]) -> FanGroup {
        let recipients = places.iter().filter_map(|place| self.rcpt_to().get(*place).cloned());
        let mut group = FanGroup::new(recipients.collect());
        if let Some(dsn) = self.dsn_of(places) {
            group.state = json!({ "dsn": dsn });
        }
        group
    }

    /// A message of its own, such as an answer: it is there when this one has gone its way, and only then.
    pub fn enqueue_new(&mut self, message: SideMessage) {
        self.fan.sides.push(message);
    }

    /// Waits at this stage with the recipients at the places `keep`, and leaves clones, such as a notification of the delay. A
    /// clone has a token of its own, so that it comes into being once.
    pub fn pause_with(
        mut self,
        state: Value,
        pause: Duration,
        keep: &[usize],
        clones: Vec<FanGroup>,
    ) -> Done {
        self.fan_out(keep, clones);
        self.pause(state, pause)
    }

    /// Delivered or dropped, and leaves clones, such as a bounce for each recipient that was refused.
    pub fn finish_with(mut self, clones: Vec<FanGroup>) -> Done {
        self.fan.groups.extend(clones);
        self.finish()
    }

    /// Delivered: on to NEXT_STAGE where there is one, else the row goes. Where `originate` says so (ORIGINATE_SUCCESS_DSN),
    /// recipients of NOTIFY=SUCCESS (RFC 3461, 4.1) go to BOUNCE_STAGE as a message that asks it for their notification.
    pub fn complete_success(mut self, originate: bool) -> Done {
        let places: Vec<usize> =
            (0..self.rcpt_to().len()).filter(|place| self.wants_success(*place)).collect();
        let Some(stage) = self.bounce_stage().map(str::to_owned).filter(|_| originate && !places.is_empty())
        else {
            return self.advance_or_finish();
        };
        let mut report = self.group_of(&places);
        report.stage = Some(stage);
        lay_over(&mut report.state, json!({ "bounce": { "kind": "success" } }));
        report.token = Some(format!("success/{}/{}", self.id(), self.stage()));
        self.fan.groups.push(report);
        self.advance_or_finish()
    }

    fn wants_success(&self, place: usize) -> bool {
        let entry = self.state().get("dsn").and_then(|dsn| dsn.get("rcpt")?.get(place)?.get("notify"));
        let is_success = |word: &str| word.trim().eq_ignore_ascii_case("SUCCESS");
        match entry {
            Some(Value::String(notify)) => notify.split(',').any(is_success),
            Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).any(is_success),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => false,
        }
    }
}

fn lay_over(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(mut over)) => under.append(&mut over),
        (under, over) => panic!("states are objects, not {under} and {over}"),
    }
}

#[cfg(test)]
#[path = "fan_out_tests.rs"]
mod tests;
