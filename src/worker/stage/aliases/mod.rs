//! `pepsi-stage-aliases`: recipients that stand for others are replaced by these, to the end.
//!
//! MAPS lists the maps: absolute paths of files as in `mail::alias`, and `table:NAME` for rows of `pepsi.alias`. LOCAL_DOMAINS are
//! the domains whose local parts are local names; the first one completes a local name. RECIPIENT_DELIMITER begins a tag; letters
//! of local parts match in any case unless CASE_SENSITIVE. `maps` says how an address is looked for, `expand` what it comes to.
//!
//! A recipient that no entry is for stays as it is written. One that takes no mail, or whose entries are wrong, goes to
//! BOUNCE_STAGE, or fails, on a row of its own; one whose entry cannot be read waits. The others go on to NEXT_STAGE.
//!
//! `state.dsn.rcpt` is rebuilt with the recipients (RFC 3461, 5.2.7): NOTIFY and ORCPT go on unchanged, but behind an entry
//! with several addresses nobody is asked to report a success: it would be told once for each.

mod expand;
mod maps;

use super::{Context, Done, Kind, Load, Stage, StageError, Tables};
use crate::proto::conf::{ConfError, Section};
use crate::worker::fan_out::{FanGroup, GroupStatus};
use crate::{Level, log};
use expand::{End, Ended, MAX_DEPTH, MAX_STEPS, expand};
use maps::{Maps, View};
use serde_json::{Value, json};
use std::fmt::Display;
use std::time::Duration;

pub const KIND: Kind = Kind {
    program: "pepsi-stage-aliases",
    load: Load::Metadata,
    fuses: false,
    options: &["MAPS", "LOCAL_DOMAINS", "RECIPIENT_DELIMITER", "CASE_SENSITIVE"],
    personal: &[],
    check: |section| Ok(Box::new(Aliases::read(section)?)),
};

/// What a sender is told of an address that takes no mail, where its entry says nothing.
const TAKES_NO_MAIL: &str = "The address takes no mail.";
/// And of one whose entries are wrong: how, is for the operator (S5).
const IS_WRONG: &str = "The address cannot be resolved to mailboxes here.";
/// The first pause of S1, for a recipient that waits while others go on.
const PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Aliases {
    maps: Maps,
}

impl Stage for Aliases {
    fn run(&self, message: Context, tables: &mut dyn Tables) -> Result<Done, StageError> {
        let mut view = View::new(&self.maps);
        view.fetch(message.rcpt_to(), MAX_DEPTH + 1, MAX_STEPS, tables)?;
        match expand(&view, message.rcpt_to()) {
            Some(ends) => conclude(message, Sorted::new(ends)),
            None => message.advance(),
        }
    }
}

impl Aliases {
    fn read(section: &Section<'_>) -> Result<Aliases, ConfError> {
        let maps = Maps::read(section)?;
        section.required("NEXT_STAGE")?;
        Ok(Aliases { maps })
    }
}

/// A recipient of the message as it is to be: whose place it takes, and whether it is one of several that do.
struct Recipient {
    text: String,
    place: usize,
    is_one_of_several: bool,
}

struct Refused {
    recipient: Recipient,
    told: String,
    reason: String,
    /// Of the line in the log: an entry that is wrong is to be mended, one that fails is as it should be.
    level: Level,
}

struct Waits {
    place: usize,
    why: String,
}

/// The ends by what is to be done.
#[derive(Default)]
struct Sorted {
    goes_on: Vec<Recipient>,
    refused: Vec<Refused>,
    waits: Vec<Waits>,
    discarded: usize,
}

impl Sorted {
    fn new(ends: Vec<Ended>) -> Sorted {
        let mut sorted = Sorted::default();
        for Ended { place, end, is_one_of_several } in ends {
            let recipient = |text: String| Recipient { text, place, is_one_of_several };
            match end {
                End::Recipient(text) => sorted.goes_on.push(recipient(text)),
                End::Discarded => sorted.discarded += 1,
                End::Failed { address, text } => {
                    let told = if text.is_empty() { TAKES_NO_MAIL.to_owned() } else { text };
                    let reason = format!("{address}: {told}");
                    let recipient = recipient(address);
                    sorted.refused.push(Refused { recipient, told, reason, level: Level::Info });
                }
                End::Broken { address, why } => {
                    let reason = format!("the alias {address} {why}");
                    let (told, recipient) = (IS_WRONG.to_owned(), recipient(address));
                    sorted.refused.push(Refused { recipient, told, reason, level: Level::Error });
                }
                End::Waits(why) => {
                    sorted.waits.push(Waits { place, why: format!("cannot resolve an alias: {why}") });
                }
            }
        }
        sorted
    }
}

fn conclude(mut message: Context, sorted: Sorted) -> Result<Done, StageError> {
    let Sorted { goes_on, refused, waits, discarded } = sorted;
    if discarded > 0 {
        let pairs: [(&str, &dyn Display); 2] = [("id", &message.id()), ("count", &discarded)];
        log(Level::Info, message.stage(), "an alias discards the message for recipients", &pairs);
    }
    let mut groups: Vec<FanGroup> = refused.iter().map(|refused| bounced(&message, refused)).collect();
    let all: Vec<usize> = (0..message.rcpt_to().len()).collect();
    if !goes_on.is_empty() {
        groups.extend(waits.iter().map(|waits| waiting(&message, waits)));
        let state = dsn(&message, &goes_on).map_or_else(|| json!({}), |dsn| json!({ "dsn": dsn }));
        let rcpt_to: Vec<String> = goes_on.into_iter().map(|recipient| recipient.text).collect();
        message.fan_out(&all, groups);
        return if rcpt_to == message.rcpt_to() {
            message.advance()
        } else {
            message.rewrite_recipients(rcpt_to, state)
        };
    }
    if let Some((first, others)) = waits.split_first() {
        groups.extend(others.iter().map(|waits| waiting(&message, waits)));
        message.fan_out(&[first.place], groups);
        return Err(message.stop(StageError::host(first.why.as_str())));
    }
    if groups.is_empty() {
        return Ok(message.finish());
    }
    let first = groups.remove(0);
    message.fan_out(&all, groups);
    message.set_rcpt_to(first.rcpt_to);
    Ok(match first.stage {
        Some(stage) => message.reroute(&stage, first.state),
        None => message.fail(first.state),
    })
}

/// The row of a recipient that is refused.
fn bounced(message: &Context, refused: &Refused) -> FanGroup {
    let Refused { recipient, told, reason, level } = refused;
    let pairs: [(&str, &dyn Display); 2] = [("id", &message.id()), ("reason", reason)];
    log(*level, message.stage(), "a recipient is refused", &pairs);
    let mut group = FanGroup::new(vec![recipient.text.clone()]);
    if let Some(dsn) = dsn(message, std::slice::from_ref(recipient)) {
        group.state = json!({ "dsn": dsn });
    }
    message.refused(group, reason, told)
}

/// The row of a recipient that waits. It is alone there: nobody else's entries keep it waiting again.
fn waiting(message: &Context, waits: &Waits) -> FanGroup {
    let pairs: [(&str, &dyn Display); 2] = [("id", &message.id()), ("error", &waits.why)];
    log(Level::Warning, message.stage(), "a recipient is put off", &pairs);
    let mut group = message.group_of(&[waits.place]);
    group.state["last_error"] = json!(waits.why);
    group.state["temporary_failures"] = json!(1);
    FanGroup { status: GroupStatus::Retry(PAUSE), ..group }
}

/// `state.dsn` of these recipients; None where the message has none, or it is not parallel to its recipients.
fn dsn(message: &Context, recipients: &[Recipient]) -> Option<Value> {
    let places: Vec<usize> = recipients.iter().map(|recipient| recipient.place).collect();
    let mut dsn = message.dsn_of(&places)?;
    let entries = dsn.get_mut("rcpt").and_then(Value::as_array_mut)?;
    for (entry, recipient) in entries.iter_mut().zip(recipients) {
        if recipient.is_one_of_several
            && let Some(notify) = entry.get("notify").and_then(Value::as_str)
        {
            entry["notify"] = json!(without_success(notify));
        }
    }
    Some(dsn)
}

/// NOTIFY without SUCCESS. Where nothing else was asked for, nothing is to be told.
fn without_success(notify: &str) -> String {
    let words = notify.split(',').map(str::trim).filter(|word| !word.eq_ignore_ascii_case("SUCCESS"));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "NEVER".to_owned() } else { words.join(",") }
}

#[cfg(test)]
mod tests;
