//! `pepsi-stage-edit-settings`: the owner of an address changes its settings by mail; every other message passes through.
//!
//! A control message has CONTROL_ADDRESS among its recipients and comes from an owner: the login of its submission is its
//! envelope sender, or is the local part of it at one of LOCAL_DOMAINS; with TRUST_LOCAL any message that was handed in on this
//! host counts. `commands` says what stands in it. All of its changes are made, or none. The owner gets an answer, from the
//! null sender, at ANSWER_STAGE; the control message ends, and other recipients that it has go on to NEXT_STAGE.
//!
//! Invariants: whether it is one is told by metadata alone, so that everything else may pass without its body (U1). Only options
//! that a stage declares personal can be set, to values that its check takes. Automatic mail changes nothing and is not
//! answered (RFC 3834), so no two programs talk to each other for ever.

mod commands;

use super::{Change, Context, Done, Kind, Load, Stage, StageError, Tables, find, personal};
use crate::mail::address::{self, Address};
use crate::mail::{alias, header, plain, trace};
use crate::proto::conf::{Conf, ConfError, Section};
use crate::proto::graph;
use crate::worker::fan_out::SideMessage;
use crate::{Level, host, log};
use commands::Command;
use serde_json::{Value, json};

pub const KIND: Kind = Kind {
    program: "pepsi-stage-edit-settings",
    load: Load::Full,
    fuses: true,
    options: &["CONTROL_ADDRESS", "LOCAL_DOMAINS", "TRUST_LOCAL", "ANSWER_STAGE"],
    personal: &[],
    check: |section| Ok(Box::new(EditSettings::read(section, find)?)),
};

/// Octets of a line of an answer, without its indent.
const MAX_LINE: usize = 900;

#[derive(Debug)]
struct EditSettings {
    control: Address,
    local_domains: Vec<String>,
    trust_local: bool,
    answer_stage: String,
    conf: Conf,
    find: fn(&str) -> Option<&'static Kind>,
}

impl Stage for EditSettings {
    fn run(&self, mut message: Context, tables: &mut dyn Tables) -> Result<Done, StageError> {
        let Some(owner) = self.owner(&message) else { return message.advance() };
        if header::is_automatic(message.headers()?) {
            log(
                Level::Info,
                message.stage(),
                "an automatic message changes no settings",
                &[("id", &message.id())],
            );
        } else {
            let said = plain::plain(message.headers()?, message.body()?.unwrap_or_default());
            let asked = said
                .map_err(|why| vec![format!("Your message {why}.")])
                .and_then(|text| commands::read(&text));
            let checked = asked.and_then(|commands| self.check(&commands).map(|()| commands));
            if let Ok(commands) = &checked {
                let changes: Vec<Change> = commands.iter().map(|command| command.change.clone()).collect();
                tables.set(&owner, &changes)?;
            }
            let (count, why) = match &checked {
                Ok(commands) => (commands.len(), String::new()),
                Err(wrong) => (0, wrong.join(" ")),
            };
            let pairs: [(&str, &dyn std::fmt::Display); 4] =
                [("id", &message.id()), ("owner", &owner), ("changes", &count), ("error", &why)];
            log(Level::Info, message.stage(), "settings by mail", &pairs);
            let answer = self.answer(&message, &owner, &checked)?;
            message.enqueue_new(answer);
        }
        let others: Vec<usize> = (0..message.rcpt_to().len())
            .filter(|place| !self.is_control(&message.rcpt_to()[*place]))
            .collect();
        if others.is_empty() {
            return Ok(message.finish());
        }
        message.keep_recipients(&others);
        message.advance()
    }

    fn can_fuse(&self, message: &Context, load: Load) -> bool {
        load <= message.loaded() || self.owner(message).is_none()
    }
}

impl EditSettings {
    fn read(
        section: &Section<'_>,
        find: fn(&str) -> Option<&'static Kind>,
    ) -> Result<EditSettings, ConfError> {
        let text = section.required("CONTROL_ADDRESS")?;
        let refuse = |why: &str| section.error("CONTROL_ADDRESS", &format!("{text:?} {why}"));
        let control = address::parse(&text).map_err(|error| refuse(&error.0))?;
        if control.domain.is_empty() {
            return Err(refuse("has no domain"));
        }
        let mut local_domains = Vec::new();
        for domain in section.get("LOCAL_DOMAINS")?.unwrap_or_default().split_whitespace() {
            let error =
                |why: address::AddressError| section.error("LOCAL_DOMAINS", &format!("{domain:?} {why}"));
            local_domains.push(address::domain(domain).map_err(error)?);
        }
        section.required("NEXT_STAGE")?;
        let answer_stage =
            graph::stage_option(section, "ANSWER_STAGE")?.unwrap_or_else(|| graph::INIT.into());
        let trust_local = section.boolean("TRUST_LOCAL", false)?;
        Ok(EditSettings {
            control,
            local_domains,
            trust_local,
            answer_stage,
            conf: section.conf().clone(),
            find,
        })
    }

    fn is_control(&self, recipient: &str) -> bool {
        let (local, domain) = address::divide(recipient);
        let key = |local: &str, domain: &str| alias::key(&address::content(local), Some(domain), false);
        domain.is_some_and(|domain| {
            key(local, &domain) == key(&self.control.local, &self.control.domain_lower())
        })
    }

    /// Whose settings the message is about, as they are found for mail: with the letters of ASCII in lower case. None where it
    /// is no control message.
    fn owner(&self, message: &Context) -> Option<String> {
        if !message.rcpt_to().iter().any(|recipient| self.is_control(recipient)) {
            return None;
        }
        let sender = address::parse(message.mail_from()).ok().filter(|sender| !sender.domain.is_empty())?;
        let owner = sender.to_string().to_ascii_lowercase();
        let state = message.state();
        let is_local = self.trust_local && state.get("local_origin") == Some(&Value::Bool(true));
        let login = state.get("origin").and_then(|origin| origin.get("auth_user")?.as_str());
        let is_login = login.is_some_and(|login| match login.to_ascii_lowercase() {
            login if login.contains('@') => login == owner,
            login => {
                self.local_domains.contains(&sender.domain_lower())
                    && login == sender.local.to_ascii_lowercase()
            }
        });
        (is_local || is_login).then_some(owner)
    }

    /// Whether all of it may be set; else what is wrong, a line each.
    fn check(&self, commands: &[Command]) -> Result<(), Vec<String>> {
        let changes: Vec<Change> = commands.iter().map(|command| command.change.clone()).collect();
        let wrong = personal::check_kinds(&self.conf, &changes, self.find);
        let line = |(place, why): personal::Wrong| match place.and_then(|place| commands.get(place)) {
            Some(command) => format!("Line {}: {why}.", command.line),
            None => format!("{why}."),
        };
        if wrong.is_empty() { Ok(()) } else { Err(wrong.into_iter().map(line).collect()) }
    }

    fn answer(
        &self,
        message: &Context,
        owner: &str,
        checked: &Result<Vec<Command>, Vec<String>>,
    ) -> Result<SideMessage, StageError> {
        let (subject, body) = match checked {
            Ok(commands) => ("Your settings were changed", changed(commands)),
            Err(wrong) => ("Your settings were not changed", refused(wrong)),
        };
        let received = message.received_at_us();
        let id = u32::try_from(message.id().unsigned_abs() & u64::from(u32::MAX)).unwrap_or(0);
        let mut headers = format!(
            "Date: {}\r\nFrom: {}\r\nTo: {owner}\r\nSubject: {subject}\r\nMessage-ID: {}\r\n",
            trace::date(host::wall_clock_us() / 1_000_000),
            self.control,
            trace::message_id(received, id, message.host()),
        );
        if let Some(id) = header::text(message.headers()?, "Message-ID").filter(|id| is_message_id(id)) {
            headers += &format!("In-Reply-To: {id}\r\nReferences: {id}\r\n");
        }
        headers += "Auto-Submitted: auto-replied\r\nMIME-Version: 1.0\r\n\
                    Content-Type: text/plain; charset=UTF-8\r\nContent-Transfer-Encoding: 8bit\r\n";
        Ok(SideMessage {
            mail_from: String::new(),
            rcpt_to: vec![owner.to_owned()],
            headers: headers.into_bytes(),
            body: Some(body.into_bytes()),
            state: json!({}),
            stage: self.answer_stage.clone(),
        })
    }
}

fn changed(commands: &[Command]) -> String {
    let mut body = String::from("These settings of yours were changed:\r\n\r\n");
    for Change { stage, option, value } in commands.iter().map(|command| &command.change) {
        body += &line(&match value {
            Some(value) => format!("set {stage} {option} {value}"),
            None => format!("unset {stage} {option}"),
        });
    }
    body
}

fn refused(wrong: &[String]) -> String {
    let mut body = String::from("Nothing was changed:\r\n\r\n");
    for why in wrong {
        body += &line(why);
    }
    body + "\r\nOne command stands in a line, in plain text:\r\n\r\n\
            \x20 set STAGE OPTION VALUE\r\n  unset STAGE OPTION\r\n  end\r\n"
}

/// An indented line of an answer. What is too long for one (RFC 5322, 2.1.1: 998 octets) is cut: a value may be that long.
fn line(text: &str) -> String {
    let end = (0..=MAX_LINE.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let more = if end < text.len() { "..." } else { "" };
    format!("  {}{more}\r\n", &text[..end])
}

/// So that it cannot end the field that it is put into, nor make it long.
fn is_message_id(id: &str) -> bool {
    let is_plain = id.bytes().all(|byte| (33..=126).contains(&byte));
    id.len() <= 250 && is_plain && id.starts_with('<') && id.ends_with('>')
}

#[cfg(test)]
mod tests;
