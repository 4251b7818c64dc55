//! What is laid over a stage's options for the correspondents of a message (requirements X1, X2): rows that came with it.
//!
//! The correspondent is the sender of a message of local origin, else each recipient. What counts, the later the more: the
//! section as all have it; what the administrator set for the correspondent's domain (`config_override`, scope `domain:`);
//! what the owner of the address set (`pepsi.settings`), of the options that the stage leaves to owners, and never with a
//! variable in it; what the administrator set for this address (scope `address:`). Addresses are compared in lower case.

use super::context::Context;
use super::error::StageError;
use super::runtime::Served;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Options in upper case, and what is laid over them.
pub type Overrides = BTreeMap<String, Override>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Override {
    pub value: String,
    /// The owner of the address set it, not the administrator.
    pub is_owned: bool,
}

/// The rows that came with a message.
#[derive(Debug)]
pub struct Settings {
    /// By the address or domain that they are of.
    rows: BTreeMap<String, Vec<Setting>>,
    /// Whom they are of.
    correspondents: BTreeSet<String>,
}

#[derive(Debug)]
struct Setting {
    scope: Scope,
    stage: String,
    option: String,
    laid: Override,
}

/// In the order in which one is laid over the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Domain,
    Owner,
    Address,
}

impl Settings {
    /// Reads what src/sql/load.sql brings; what has another form counts for nothing.
    pub fn read(found: &Value, message: &Context) -> Settings {
        let rows = found.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut found: BTreeMap<String, Vec<Setting>> = BTreeMap::new();
        for (of, setting) in rows.iter().filter_map(setting) {
            found.entry(of).or_default().push(setting);
        }
        found.values_mut().for_each(|rows| rows.sort_by_key(|row| row.scope));
        Settings { rows: found, correspondents: correspondents(message).into_iter().collect() }
    }

    fn of(&self, correspondent: &str, served: &Served) -> Overrides {
        let domain = correspondent.rsplit_once('@').map_or(correspondent, |(_, domain)| domain);
        let rows = |of: &str| self.rows.get(of).map(Vec::as_slice).unwrap_or_default();
        // A name without `@` may be both.
        let of_domain = rows(domain).iter().filter(|row| row.scope == Scope::Domain);
        let of_address = rows(correspondent).iter().filter(|row| row.scope != Scope::Domain);
        let counts = |row: &&Setting| {
            let open = if row.scope == Scope::Owner { served.personal } else { served.options };
            row.stage == served.route.stage && open.contains(&row.option.as_str())
        };
        let counting = of_domain.chain(of_address).filter(counts);
        counting.map(|row| (row.option.clone(), row.laid.clone())).collect()
    }
}

/// Whom a row is of, and the rest of it.
fn setting(row: &Value) -> Option<(String, Setting)> {
    let text = |place: usize| row.get(place).and_then(Value::as_str);
    let (scope, of) = text(0)?.split_once(':')?;
    let scope = match scope {
        "domain" => Scope::Domain,
        "owner" => Scope::Owner,
        "address" => Scope::Address,
        _ => return None,
    };
    let section = text(1)?.to_ascii_lowercase();
    let stage = section.strip_prefix("stage-")?.to_owned();
    let laid = Override { value: text(3)?.to_owned(), is_owned: scope == Scope::Owner };
    Some((of.to_owned(), Setting { scope, stage, option: text(2)?.to_ascii_uppercase(), laid }))
}

/// Whose settings a message goes by, in lower case.
fn correspondents(message: &Context) -> Vec<String> {
    if is_local(message) {
        return vec![message.mail_from().to_ascii_lowercase()];
    }
    message.rcpt_to().iter().map(|address| address.to_ascii_lowercase()).collect()
}

/// The error that the settings which the message goes by have something wrong with them, as `clause` says (S4).
pub fn refused(message: &Context, clause: &str) -> StageError {
    let whose = correspondents(message).into_iter().next().unwrap_or_default();
    StageError::host(format!("what is set for {whose} {clause}")).permanent()
}

fn is_local(message: &Context) -> bool {
    message.state().get("local_origin") == Some(&Value::Bool(true))
}

/// The message's recipients, by their places, as their settings for the stage of `served` divide them: in the order of the first
/// of each. One group where nothing divides them.
pub fn groups(message: &Context, served: &Served) -> Vec<(Overrides, Vec<usize>)> {
    let all = || (0..message.rcpt_to().len()).collect();
    let Some(settings) = message.settings() else { return vec![(Overrides::new(), all())] };
    let correspondents = correspondents(message);
    if is_local(message) || correspondents.is_empty() {
        let of_sender = correspondents.first().map(|sender| settings.of(sender, served));
        return vec![(of_sender.unwrap_or_default(), all())];
    }
    let mut groups: BTreeMap<Overrides, Vec<usize>> = BTreeMap::new();
    for (place, correspondent) in correspondents.iter().enumerate() {
        groups.entry(settings.of(correspondent, served)).or_default().push(place);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, places)| places[0]);
    groups
}

/// What is laid over the stage that a message would go on to in the same pass. None where that has to be looked up anew, since
/// an earlier stage gave it other correspondents, or where its recipients are to be divided first, which needs what the
/// earlier stages changed in the database (U4).
pub fn in_pass(message: &Context, served: &Served) -> Option<Overrides> {
    let Some(settings) = message.settings() else { return Some(Overrides::new()) };
    if !correspondents(message).iter().all(|one| settings.correspondents.contains(one)) {
        return None;
    }
    let mut groups = groups(message, served);
    if groups.len() == 1 { groups.pop().map(|(overrides, _)| overrides) } else { None }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
