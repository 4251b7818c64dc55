//! Refusals: a message, or one of its recipients, that is not to go on. It goes to BOUNCE_STAGE with what a notification needs
//! (`state.bounce`), or fails where there is none. The reason is for operators; the diagnostic is what the sender may see (S5).

use super::context::{Context, Done};
use super::fan_out::{FanGroup, GroupStatus};
use crate::{Level, log};
use serde_json::{Map, Value, json};
use std::fmt::Display;

impl Context {
    /// The message goes no further. `place` is the recipient that it is about, None for all of them.
    pub fn refuse(self, place: Option<usize>, reason: &str, diagnostic: &str) -> Done {
        let entry = place.and_then(|place| self.state().get("dsn")?.get("rcpt")?.get(place)).cloned();
        let recipient = place.and_then(|place| self.rcpt_to().get(place)).cloned();
        let state = self.refusal(recipient.as_deref(), entry.as_ref(), reason, diagnostic);
        let pairs: [(&str, &dyn Display); 2] = [("id", &self.id()), ("reason", &reason)];
        log(Level::Warning, self.stage(), "refused", &pairs);
        match self.bounce_stage().map(str::to_owned) {
            Some(stage) => self.reroute(&stage, state),
            None => self.fail(state),
        }
    }

    /// The recipient at this place goes no further, on a row of its own; the others stay.
    pub fn refuse_recipient(&mut self, place: usize, reason: &str, diagnostic: &str) {
        let group = self.group_of(&[place]);
        let refused = self.refused(group, reason, diagnostic);
        let rest: Vec<usize> = (0..self.rcpt_to().len()).filter(|other| *other != place).collect();
        self.fan_out(&rest, vec![refused]);
    }

    /// A row of one recipient as one that is refused.
    pub fn refused(&self, mut group: FanGroup, reason: &str, diagnostic: &str) -> FanGroup {
        let entry = group.state.get("dsn").and_then(|dsn| dsn.get("rcpt")?.get(0)).cloned();
        let state =
            self.refusal(group.rcpt_to.first().map(String::as_str), entry.as_ref(), reason, diagnostic);
        for (key, value) in state.as_object().into_iter().flatten() {
            group.state[key] = value.clone();
        }
        group.stage = self.bounce_stage().map(str::to_owned);
        group.status = if group.stage.is_some() { GroupStatus::Pending } else { GroupStatus::Failed };
        group
    }

    /// The keys of the state. `entry` is the recipient's of `state.dsn.rcpt`.
    fn refusal(
        &self,
        recipient: Option<&str>,
        entry: Option<&Value>,
        reason: &str,
        diagnostic: &str,
    ) -> Value {
        let mut state = json!({
            "last_error": reason, "failed_stage": self.stage(), "failure_class": "permanent",
        });
        if self.bounce_stage().is_some() {
            let mut bounce = Map::new();
            bounce.insert("kind".into(), json!("permanent"));
            bounce.insert("diagnostic".into(), json!(diagnostic));
            if let Some(recipient) = recipient {
                bounce.insert("failed_recipient".into(), json!(recipient));
            }
            for (key, of) in [("notify", entry), ("orcpt", entry), ("envid", self.state().get("dsn"))] {
                if let Some(value) = of.and_then(|of| of.get(key)) {
                    bounce.insert(key.into(), value.clone());
                }
            }
            state["bounce"] = Value::Object(bounce);
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::fixture::{self, Move, Row};

    fn message(bounce: Option<&str>) -> Context {
        let entry = |n: u64| json!({ "notify": "FAILURE", "orcpt": n });
        let state = json!({ "dsn": { "envid": "e", "rcpt": [entry(0), entry(1)] } });
        let mut route = fixture::route("x");
        route.bounce = bounce.map(str::to_owned);
        fixture::context(Row { rcpt_to: vec!["a@x".into(), "b@x".into()], state, ..fixture::row(1) }, route)
    }

    // Req: S3, S5
    #[test]
    fn what_is_refused_goes_to_the_bounce_stage_with_what_a_notification_needs() {
        let outcome = message(Some("back")).refuse(Some(1), "host text", "told").into_outcome();
        assert_eq!(outcome.to, Move::Advance { stage: "back".into() });
        let bounce = json!({
            "kind": "permanent", "diagnostic": "told", "failed_recipient": "b@x",
            "notify": "FAILURE", "orcpt": 1, "envid": "e",
        });
        let expected = json!({
            "last_error": "host text", "failed_stage": "x", "failure_class": "permanent", "bounce": bounce,
        });
        assert_eq!(outcome.merge, expected);
        let outcome = message(Some("back")).refuse(None, "host text", "told").into_outcome();
        assert_eq!(
            outcome.merge["bounce"],
            json!({ "kind": "permanent", "diagnostic": "told", "envid": "e" })
        );
    }

    // Req: S3
    #[test]
    fn without_a_bounce_stage_it_fails_as_it_was_left() {
        let mut some = message(None);
        some.keep_recipients(&[1]);
        let outcome = some.refuse(Some(0), "why", "told").into_outcome();
        assert_eq!((&outcome.to, &outcome.merge["last_error"]), (&Move::Fail, &json!("why")));
        assert_eq!((outcome.content.rcpt_to, outcome.merge.get("bounce")), (Some(vec!["b@x".into()]), None));
    }

    // Req: A5
    #[test]
    fn a_recipient_is_refused_on_a_row_of_its_own() {
        for (bounce, status) in [(Some("back"), GroupStatus::Pending), (None, GroupStatus::Failed)] {
            let mut some = message(bounce);
            some.refuse_recipient(1, "why", "told");
            assert_eq!(some.rcpt_to(), ["a@x"]);
            let fan = some.finish().into_outcome().fan;
            let [group] = &fan.groups[..] else { panic!("{fan:?}") };
            assert_eq!(
                (group.rcpt_to.join(" "), group.stage.as_deref(), group.status),
                ("b@x".into(), bounce, status)
            );
            assert_eq!(group.state["dsn"]["rcpt"], json!([{ "notify": "FAILURE", "orcpt": 1 }]));
            assert_eq!(group.state["bounce"]["orcpt"], if bounce.is_some() { json!(1) } else { json!(null) });
            assert_eq!(group.state["last_error"], "why");
        }
    }
}
