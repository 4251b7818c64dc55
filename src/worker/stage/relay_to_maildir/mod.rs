//! `pepsi-stage-relay-to-maildir`: delivery into Maildirs, one file for each Maildir that the recipients lead to.
//!
//! MAILDIR is the template (see `place`); LINE_END=lf|crlf says how lines end on disk; ADD_TRACE=yes puts `Return-Path:`
//! and a `Delivered-To:` for each recipient in front (RFC 5321 section 4.4); DEFAULT_DOMAIN completes a bare local name.
//!
//! All recipients are tried. If the host fails one, the message waits with those that are left; those delivered are not
//! tried again. A recipient whose address has no place goes to BOUNCE_STAGE, or fails, alone.

mod place;
mod store;

use super::{Context, Done, Kind, Load, Stage, StageError, Tables, line_end};
use crate::mail::address::{self, Address};
use crate::mail::line_end::LineEnd;
use crate::mail::trace;
use crate::proto::conf::{ConfError, Section};
use place::{Place, Template, VARIABLES};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};
use store::Delivery;

pub const KIND: Kind = Kind {
    program: "pepsi-stage-relay-to-maildir",
    load: Load::Full,
    fuses: false,
    options: &["MAILDIR", "LINE_END", "ADD_TRACE", "DEFAULT_DOMAIN"],
    personal: &[],
    check: |section| Ok(Box::new(RelayToMaildir::read(section)?)),
};

/// Of the host's name in a file's name, so that the whole stays under 255 bytes.
const MAX_HOST: usize = 100;
/// What a sender is told of an address that has no place.
const NO_PLACE: &str = "The address names no mailbox here.";

#[derive(Debug)]
struct RelayToMaildir {
    template: Template,
    line_end: LineEnd,
    add_trace: bool,
    default_domain: Option<String>,
}

/// A recipient that has none: its place in the list, and why.
struct Refused {
    recipient: usize,
    reason: String,
}

impl Stage for RelayToMaildir {
    fn run(&self, mut message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
        if message.rcpt_to().is_empty() {
            return Err(StageError::host("the message has no recipient").permanent());
        }
        let (targets, refused) = self.targets(message.rcpt_to());
        let mut left = Vec::new();
        let mut trouble = None;
        for (place, recipients) in targets {
            if let Err(error) = self.deliver(&message, &place, &recipients) {
                left.extend(recipients);
                trouble = trouble.or(Some(error));
            }
        }
        let Some(error) = trouble else { return Ok(conclude(message, &refused)) };
        left.extend(refused.iter().map(|refused| refused.recipient));
        left.sort_unstable();
        message.keep_recipients(&left);
        Err(message.stop(error))
    }
}

/// The end of a message whose other recipients have been delivered to.
fn conclude(mut message: Context, refused: &[Refused]) -> Done {
    if refused.is_empty() {
        return message.advance_or_finish();
    }
    let name = |refused: &Refused| format!("{}: {}", message.rcpt_to()[refused.recipient], refused.reason);
    let reasons: Vec<String> = refused.iter().map(name).collect();
    let text = format!("no Maildir for {}", reasons.join("; "));
    let places: Vec<usize> = refused.iter().map(|refused| refused.recipient).collect();
    message.keep_recipients(&places);
    // The first of those that are left.
    message.refuse(Some(0), &text, NO_PLACE)
}

impl RelayToMaildir {
    fn read(section: &Section<'_>) -> Result<RelayToMaildir, ConfError> {
        let text = section.template("MAILDIR", &VARIABLES)?.unwrap_or_default();
        if text.is_empty() {
            return Err(section.error("MAILDIR", "is missing or empty"));
        }
        let template = Template::parse(&text)
            .map_err(|clause| section.error("MAILDIR", &format!("\"{text}\" {clause}")))?;
        let line_end = line_end(section)?;
        let add_trace = section.boolean("ADD_TRACE", true)?;
        let default_domain = section.get("DEFAULT_DOMAIN")?.filter(|domain| !domain.is_empty());
        Ok(RelayToMaildir { template, line_end, add_trace, default_domain })
    }

    /// The Maildirs with their recipients' places in the list, and the recipients that have none.
    fn targets(&self, rcpt_to: &[String]) -> (BTreeMap<Place, Vec<usize>>, Vec<Refused>) {
        let mut targets: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
        let mut refused = Vec::new();
        for (recipient, rcpt) in rcpt_to.iter().enumerate() {
            match self.place(rcpt) {
                Ok(place) => targets.entry(place).or_default().push(recipient),
                Err(reason) => refused.push(Refused { recipient, reason }),
            }
        }
        (targets, refused)
    }

    fn place(&self, rcpt: &str) -> Result<Place, String> {
        let mut address: Address = address::parse(rcpt).map_err(|error| error.0)?;
        if address.domain.is_empty() && self.template.needs_domain() {
            let domain = self.default_domain.clone();
            address.domain = domain.ok_or("it has no domain, and there is no DEFAULT_DOMAIN")?;
        }
        self.template.place(&address)
    }

    fn deliver(&self, message: &Context, place: &Place, recipients: &[usize]) -> Result<(), StageError> {
        let (headers, body) = (message.headers()?, message.body()?);
        let received_us = u64::try_from(message.received_at_us()).unwrap_or(0);
        // The form of https://cr.yp.to/proto/maildir.html: seconds, then what is unique among them, then the host.
        let (seconds, micros) = (received_us / 1_000_000, received_us % 1_000_000);
        let host: String = message.host().chars().take(MAX_HOST).collect();
        let name = format!("{seconds}.M{micros}Q{}.{host}", message.id());
        let received = UNIX_EPOCH + Duration::from_micros(received_us);
        let recipients = recipients.iter().map(|recipient| message.rcpt_to()[*recipient].as_str());
        let trace =
            if self.add_trace { trace::delivery(message.mail_from(), recipients) } else { String::new() };
        Delivery { name: &name, received }.make(place, &|out| {
            self.write(out, trace.as_bytes())?;
            self.write(out, headers)?;
            if let Some(body) = body {
                self.write(out, b"\r\n")?;
                self.write(out, body)?;
            }
            Ok(())
        })
    }

    fn write(&self, out: &mut dyn Write, part: &[u8]) -> io::Result<()> {
        self.line_end.pieces(part).try_for_each(|piece| out.write_all(piece))
    }
}

#[cfg(test)]
mod tests;
