//! `pepsi-stage-srs`: mail that is forwarded leaves under a sender of ours, and what comes back to that sender goes to the
//! first one (`mail::srs`).
//!
//! MODE=forward rewrites the sender of mail that leaves; MODE=reverse the recipients at SRS_DOMAIN of mail that comes in.
//! SECRET or SECRET_FILE signs; MAX_AGE says how long an address stays good; senders of LOCAL_DOMAINS need no rewriting.
//!
//! Invariants: a recipient that looks like an address of ours and is none goes to BOUNCE_STAGE as it is, or fails, on a
//! row of its own; the others go on. Recipients keep their places, so `state.dsn` is right as it stands. Time is the
//! database's: a sender is stamped with the day on which it is rewritten, a recipient judged by the day on which its
//! message came, however long either waits.

mod secrets;

use super::{Context, Done, Kind, Load, Stage, StageError, Tables};
use crate::mail::address;
use crate::mail::srs::{self, ForwardError, ReverseError, Srs};
use crate::proto::conf::{ConfError, Section};
use crate::proto::text::escape;
use std::time::Duration;

pub const KIND: Kind = Kind {
    program: "pepsi-stage-srs",
    load: Load::Metadata,
    fuses: true,
    options: &["MODE", "SRS_DOMAIN", "SECRET", "SECRET_FILE", "MAX_AGE", "LOCAL_DOMAINS"],
    personal: &[],
    check: |section| Ok(Box::new(SrsStage::read(section)?)),
};

const DAY: Duration = Duration::from_secs(86_400);

/// What a sender is told.
const TOO_LONG: &str = "The sender's address is too long for mail from it to be forwarded.";
const FORGED: &str = "The address was not made by this host.";
const EXPIRED: &str = "The address was made by this host, too long ago to be still good.";

/// Longer values are cut in an error.
const SHOWN: usize = 60;

struct SrsStage {
    srs: Srs,
    way: Way,
}

enum Way {
    Forward { ours: Vec<Ours> },
    Reverse,
}

/// A domain in lower case whose senders stay.
enum Ours {
    Exactly(String),
    /// All that end in it; it begins with a dot.
    Below(String),
}

impl Stage for SrsStage {
    fn run(&self, message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
        match &self.way {
            Way::Forward { ours } => self.forward(message, ours),
            Way::Reverse => self.reverse(message),
        }
    }
}

impl SrsStage {
    fn read(section: &Section<'_>) -> Result<SrsStage, ConfError> {
        section.required("NEXT_STAGE")?;
        let mode = section.required("MODE")?;
        let way = match mode.to_ascii_lowercase().as_str() {
            "forward" => Way::Forward { ours: local_domains(section)? },
            "reverse" => Way::Reverse,
            _ => {
                let shown = escape(&mode, SHOWN);
                return Err(section.error("MODE", &format!("\"{shown}\" is neither forward nor reverse")));
            }
        };
        let age = section.duration("MAX_AGE", 21 * DAY)?;
        let days = age.as_secs() / DAY.as_secs();
        if !(1..=srs::MAX_WINDOW).contains(&days) || age != DAY * u32::try_from(days).unwrap_or(0) {
            let range = format!("1 d to {} d", srs::MAX_WINDOW);
            return Err(section.error("MAX_AGE", &format!("is not a number of whole days from {range}")));
        }
        let domain = section.required("SRS_DOMAIN")?;
        let domain = address::domain(&domain).map_err(|error| {
            section.error("SRS_DOMAIN", &format!("\"{}\" {}", escape(&domain, SHOWN), error.0))
        })?;
        let (option, secrets) = secrets::read(section)?;
        let srs = Srs::new(&domain, &secrets, days).map_err(|why| section.error(option, &why))?;
        Ok(SrsStage { srs, way })
    }

    fn forward(&self, mut message: Context, ours: &[Ours]) -> Result<Done, StageError> {
        let sender = message.mail_from();
        if ours.iter().any(|ours| ours.holds(sender)) {
            return message.advance();
        }
        match self.srs.forward(sender, srs::day(message.now_us())) {
            Ok(None) => message.advance(),
            Ok(Some(rewritten)) => {
                message.set_mail_from(rewritten);
                message.advance()
            }
            Err(ForwardError::NotAnAddress(error)) => {
                let text = format!("the sender \"{}\" {error}", escape(sender, SHOWN));
                Err(StageError::host(text).permanent())
            }
            Err(ForwardError::TooLong) => {
                let reason = "the rewritten sender would be longer than an address may be";
                Ok(message.refuse(None, reason, TOO_LONG))
            }
        }
    }

    fn reverse(&self, mut message: Context) -> Result<Done, StageError> {
        let day = srs::day(message.received_at_us());
        let mut rcpt_to = message.rcpt_to().to_vec();
        let mut refused = Vec::new();
        for (place, recipient) in rcpt_to.iter_mut().enumerate() {
            match self.srs.reverse(recipient, day) {
                Ok(None) => {}
                Ok(Some(original)) => *recipient = original,
                Err(error) => refused.push((place, error)),
            }
        }
        if rcpt_to != message.rcpt_to() {
            message.set_rcpt_to(rcpt_to);
        }
        // From behind, so that the places before stay what they are. The last one that is left stays on this row.
        while let Some((place, error)) = refused.pop() {
            let (reason, diagnostic) = match error {
                ReverseError::Forged => ("no secret of ours made this address", FORGED),
                ReverseError::Expired => ("this address was made too long ago", EXPIRED),
            };
            let reason = format!("{}: {reason}", message.rcpt_to()[place]);
            if message.rcpt_to().len() == 1 {
                return Ok(message.refuse(Some(place), &reason, diagnostic));
            }
            message.refuse_recipient(place, &reason, diagnostic);
        }
        message.advance()
    }
}

impl Ours {
    fn holds(&self, sender: &str) -> bool {
        let Some((_, domain)) = sender.rsplit_once('@') else { return false };
        let domain = domain.strip_suffix('.').unwrap_or(domain).to_lowercase();
        match self {
            Ours::Exactly(ours) => domain == *ours,
            Ours::Below(ours) => domain.ends_with(ours),
        }
    }
}

fn local_domains(section: &Section<'_>) -> Result<Vec<Ours>, ConfError> {
    let read = |word: &str| {
        let domain = word.strip_prefix('.').unwrap_or(word);
        let domain = address::domain(domain).map_err(|error| {
            section.error("LOCAL_DOMAINS", &format!("\"{}\" {}", escape(word, SHOWN), error.0))
        })?;
        Ok(if word.starts_with('.') { Ours::Below(format!(".{domain}")) } else { Ours::Exactly(domain) })
    };
    section.get("LOCAL_DOMAINS")?.unwrap_or_default().split_whitespace().map(read).collect()
}

#[cfg(test)]
mod tests;
