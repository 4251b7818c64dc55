//! `pepsi-stage-check-whitelist`: one way for whom the recipient has listed, another for the rest.
//!
//! A sender is listed by its address or by `@DOMAIN`. SENDER=envelope|header|either|both says which sender is asked about:
//! that of the envelope, or of the `From` field. RECIPIENT_DELIMITER: `user+tag` goes by the list of `user` too.
//! LISTED_STAGE for recipients that have listed it, NEXT_STAGE for the others.
//!
//! Invariants: the null sender is listed by nobody. Case does not count, nor do quotes that an address does not need. What
//! is no address is not listed. Recipients that part ways are split: the first one's company stays on the row. One
//! statement a message.

use super::{Context, Done, Kind, Load, Stage, StageError, Tables};
use crate::mail::address;
use crate::proto::conf::{ConfError, Section};
use crate::proto::graph;
use crate::proto::text::escape;
use serde_json::json;
use std::collections::BTreeSet;

pub const KIND: Kind = Kind {
    program: "pepsi-stage-check-whitelist",
    load: Load::Metadata,
    fuses: true,
    options: &["LISTED_STAGE", "SENDER", "RECIPIENT_DELIMITER"],
    personal: &[],
    check: |section| Ok(Box::new(CheckWhitelist::read(section)?)),
};

/// Longer values are cut in an error.
const SHOWN: usize = 60;

#[derive(Debug)]
struct CheckWhitelist {
    sender: Sender,
    delimiter: Option<char>,
    listed_stage: String,
    next_stage: String,
}

/// Which sender has to be listed.
#[derive(Clone, Copy, Debug)]
enum Sender {
    Envelope,
    Header,
    Either,
    Both,
}

impl Stage for CheckWhitelist {
    fn run(&self, mut message: Context, tables: &mut dyn Tables) -> Result<Done, StageError> {
        let listed = self.ask(&message, tables)?;
        let first = listed.first().is_some_and(|is| *is);
        let others: Vec<usize> = (0..listed.len()).filter(|place| listed[*place] != first).collect();
        let (stays, parts) = match first {
            true => (&self.listed_stage, &self.next_stage),
            false => (&self.next_stage, &self.listed_stage),
        };
        if !others.is_empty() {
            message.split_off_recipients(&others, parts, json!({}));
        }
        Ok(message.advance_to(stays))
    }
}

impl CheckWhitelist {
    fn read(section: &Section<'_>) -> Result<CheckWhitelist, ConfError> {
        let stage = |option| {
            section.required(option)?;
            Ok(graph::stage_option(section, option)?.unwrap_or_default())
        };
        let value = section.get("SENDER")?.unwrap_or_else(|| "envelope".into());
        let sender = match value.to_ascii_lowercase().as_str() {
            "envelope" => Sender::Envelope,
            "header" => Sender::Header,
            "either" => Sender::Either,
            "both" => Sender::Both,
            _ => {
                let (shown, wanted) = (escape(&value, SHOWN), "envelope, header, either or both");
                return Err(section.error("SENDER", &format!("\"{shown}\" is none of {wanted}")));
            }
        };
        let delimiter = address::delimiter(&section.get("RECIPIENT_DELIMITER")?.unwrap_or_default())
            .map_err(|why| section.error("RECIPIENT_DELIMITER", &why))?;
        Ok(CheckWhitelist {
            sender,
            delimiter,
            listed_stage: stage("LISTED_STAGE")?,
            next_stage: stage("NEXT_STAGE")?,
        })
    }

    /// Which recipients have listed the sender, by their places.
    fn ask(&self, message: &Context, tables: &mut dyn Tables) -> Result<Vec<bool>, StageError> {
        let owners: Vec<Vec<String>> = message.rcpt_to().iter().map(|one| self.owners(one)).collect();
        let ways = self.ways(message);
        let addresses: BTreeSet<&String> = owners.iter().flatten().collect();
        let senders: BTreeSet<&String> = ways.iter().flatten().collect();
        if addresses.is_empty() || senders.is_empty() {
            return Ok(vec![false; owners.len()]);
        }
        let addresses: Vec<String> = addresses.into_iter().cloned().collect();
        let correspondents: Vec<String> =
            senders.into_iter().flat_map(|sender| [sender.clone(), domain_of(sender).to_owned()]).collect();
        let found = tables.listed(&addresses, &correspondents)?;
        let found: BTreeSet<(&str, &str)> =
            found.iter().map(|(address, one)| (address.as_str(), one.as_str())).collect();
        let has = |owner: &str, sender: &str| {
            found.contains(&(owner, sender)) || found.contains(&(owner, domain_of(sender)))
        };
        let is_listed = |owners: &Vec<String>| {
            let by_one = |sender: &String| owners.iter().any(|owner| has(owner, sender));
            ways.iter().any(|way| way.iter().all(by_one))
        };
        Ok(owners.iter().map(is_listed).collect())
    }

    /// The addresses whose lists count for a recipient.
    fn owners(&self, recipient: &str) -> Vec<String> {
        let Ok(address) = address::folded(recipient) else { return Vec::new() };
        let base = address.rsplit_once('@').and_then(|(local, domain)| {
            let content = address::content(local);
            let (user, _) = address::tagged(&content, self.delimiter)?;
            Some(format!("{}@{domain}", address::local_of(user)))
        });
        [Some(address), base].into_iter().flatten().collect()
    }

    /// The sender is listed where all addresses of one of these are; none of them is empty.
    fn ways(&self, message: &Context) -> Vec<Vec<String>> {
        if message.mail_from().is_empty() {
            return Vec::new();
        }
        let envelope: Vec<String> = address::folded(message.mail_from()).into_iter().collect();
        // A name that was decoded may have a comma in it: what is no address with a domain does not count.
        let header: Vec<String> = address::list(message.header_from().unwrap_or_default())
            .into_iter()
            .filter_map(|found| address::folded(&found.ok()?.to_string()).ok())
            .collect();
        let ways = match self.sender {
            Sender::Envelope => vec![envelope],
            Sender::Header => vec![header],
            Sender::Either => vec![envelope, header],
            Sender::Both if envelope.is_empty() || header.is_empty() => Vec::new(),
            Sender::Both => vec![[envelope, header].concat()],
        };
        ways.into_iter().filter(|way| !way.is_empty()).collect()
    }
}

/// `@DOMAIN` of a folded address.
fn domain_of(address: &str) -> &str {
    address.rfind('@').map_or("", |at| &address[at..])
}

#[cfg(test)]
#[path = "check_whitelist_tests.rs"]
mod tests;
