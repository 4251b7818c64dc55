//! `pepsi-stage-auto-whitelist`: whom our users write to, they take mail from. LEARN=no leaves it.
//!
//! Of a message that our own user has sent (`state.local_origin` is true, or `state.origin.auth_user` names somebody) the
//! recipients are entered into the whitelist of the sender's address. Never for the null sender, and never for mail that no
//! person has written: it would enter whoever made a program answer.
//!
//! Invariants: the message goes on as it came, whatever its addresses look like. Entering again changes nothing, so a
//! message that is handled twice does no harm.

use super::{Context, Done, Kind, Load, Stage, StageError, Tables};
use crate::mail::{address, header, srs};
use crate::proto::conf::{ConfError, Section};
use serde_json::Value;
use std::collections::BTreeSet;

pub const KIND: Kind = Kind {
    program: "pepsi-stage-auto-whitelist",
    load: Load::Headers,
    fuses: true,
    options: &["LEARN"],
    personal: &["LEARN"],
    check: |section| Ok(Box::new(AutoWhitelist::read(section)?)),
};

#[derive(Debug)]
struct AutoWhitelist {
    learn: bool,
}

impl Stage for AutoWhitelist {
    fn run(&self, message: Context, tables: &mut dyn Tables) -> Result<Done, StageError> {
        let Some(owner) = self.owner(&message) else { return message.advance() };
        let correspondents = correspondents(&message, &owner);
        if !correspondents.is_empty() && !header::is_automatic(message.headers()?) {
            tables.list(&owner, &correspondents, message.stage())?;
        }
        message.advance()
    }

    /// Only a message to learn from has to show its header.
    fn can_fuse(&self, message: &Context, load: Load) -> bool {
        load <= message.loaded() || self.owner(message).is_none()
    }
}

impl AutoWhitelist {
    fn read(section: &Section<'_>) -> Result<AutoWhitelist, ConfError> {
        section.required("NEXT_STAGE")?;
        Ok(AutoWhitelist { learn: section.boolean("LEARN", true)? })
    }

    /// Whose list it may change, as it stands there.
    fn owner(&self, message: &Context) -> Option<String> {
        let state = message.state();
        let user = state.get("origin").and_then(|origin| origin.get("auth_user")).and_then(Value::as_str);
        let is_ours = state.get("local_origin") == Some(&Value::Bool(true))
            || user.is_some_and(|user| !user.is_empty());
        address::folded(message.mail_from()).ok().filter(|_| self.learn && is_ours)
    }
}

/// Each recipient once, but for the owner, and for addresses that are no correspondents: rewritten senders are good for a
/// while only.
fn correspondents(message: &Context, owner: &str) -> Vec<String> {
    let known: BTreeSet<String> =
        message.rcpt_to().iter().filter_map(|recipient| address::folded(recipient).ok()).collect();
    let is_rewritten = |one: &str| one.rsplit_once('@').is_some_and(|(local, _)| srs::is_rewritten(local));
    known.into_iter().filter(|one| one != owner && !is_rewritten(one)).collect()
}

#[cfg(test)]
#[path = "auto_whitelist_tests.rs"]
mod tests;
