//! `pepsi-stage-route`: the next stage by the recipient's domain.
//!
//! ROUTES holds entries `DOMAIN:STAGE`, separated by blanks; ROUTES_FILE names a file with one `DOMAIN STAGE` a line. DOMAIN is
//! a domain or an address literal, `.DOMAIN` for all that end in it but itself, `-` for a recipient without a domain, and
//! `*` for the rest, as NEXT_STAGE is. The most specific entry counts, wherever it stands. Case and a trailing dot do not
//! count; a name of other letters and its `xn--` form are two domains, each matched as it is written.
//!
//! Invariants: every recipient is kept as it is written, whatever it looks like, and goes to one stage. Recipients that
//! part ways are split: the first one's company stays on the row. Looking one up takes no longer than its length times the
//! logarithm of the table's.

use super::{Context, Done, Kind, Load, Stage, StageError, Tables};
use crate::host;
use crate::mail::address;
use crate::proto::conf::{ConfError, Section};
use crate::proto::{graph, text};
use crate::worker::fan_out::FanGroup;
use std::collections::BTreeMap;

pub const KIND: Kind = Kind {
    program: "pepsi-stage-route",
    load: Load::Metadata,
    fuses: false,
    options: &["ROUTES", "ROUTES_FILE"],
    personal: &[],
    check: |section| Ok(Box::new(Route::read(section)?)),
};

/// Longer values and lines are cut in an error.
const SHOWN: usize = 60;

#[derive(Debug)]
struct Route {
    table: Table,
    /// The stage of what no entry matches.
    rest: String,
}

/// Stages by domain.
#[derive(Debug, Default)]
struct Table {
    exact: BTreeMap<String, String>,
    /// By what stands behind the dot.
    below: BTreeMap<String, String>,
    without_domain: Option<String>,
    rest: Option<String>,
}

impl Stage for Route {
    fn run(&self, mut message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
        let groups = self.groups(message.rcpt_to());
        let Some(((stage, stays), others)) = groups.split_first() else {
            // No recipient at all.
            return Ok(message.advance_to(&self.rest));
        };
        let to_row = |(stage, places): &(&str, Vec<usize>)| FanGroup {
            stage: Some((*stage).to_owned()),
            ..message.group_of(places)
        };
        let rows = others.iter().map(to_row).collect();
        message.fan_out(stays, rows);
        Ok(message.advance_to(stage))
    }
}

impl Route {
    fn read(section: &Section<'_>) -> Result<Route, ConfError> {
        let mut table = Table::default();
        for entry in section.get("ROUTES")?.unwrap_or_default().split_whitespace() {
            // The last one: an address literal of IPv6 has its own.
            let (domain, stage) = entry.rsplit_once(':').unwrap_or((entry, ""));
            table.enter(domain, stage).map_err(|why| section.error("ROUTES", &why))?;
        }
        if let Some(path) = section.get("ROUTES_FILE")?.filter(|path| !path.is_empty()) {
            if !path.starts_with('/') {
                return Err(section.error("ROUTES_FILE", "is no absolute path"));
            }
            read_file(&mut table, &path)?;
        }
        let next = graph::stage_option(section, "NEXT_STAGE")?;
        let Some(rest) = table.rest.clone().or(next) else {
            return Err(section.error("NEXT_STAGE", "is missing, and there is no entry for \"*\" either"));
        };
        Ok(Route { table, rest })
    }

    fn stage(&self, recipient: &str) -> &str {
        let (_, domain) = address::divide(recipient);
        self.table.stage(domain.as_deref()).unwrap_or(&self.rest)
    }

    /// The places of the recipients for each stage, in the order in which the stages are met.
    fn groups(&self, rcpt_to: &[String]) -> Vec<(&str, Vec<usize>)> {
        let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, recipient) in rcpt_to.iter().enumerate() {
            let stage = self.stage(recipient);
            let group = *known.entry(stage).or_insert(groups.len());
            if group == groups.len() {
                groups.push((stage, Vec::new()));
            }
            groups[group].1.push(place);
        }
        groups
    }
}

fn read_file(table: &mut Table, path: &str) -> Result<(), ConfError> {
    for (number, line) in (1..).zip(host::read_table(path)?.lines()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let entered = match words.as_slice() {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            [domain, stage] => table.enter(domain, stage),
            [_] | [_, _, ..] => Err(format!("\"{}\" is not one DOMAIN and one STAGE", shown(line))),
        };
        let error = |message| ConfError { file: path.to_owned(), line: number, message };
        entered.map_err(error)?;
    }
    Ok(())
}

impl Table {
    fn enter(&mut self, domain: &str, stage: &str) -> Result<(), String> {
        let name = stage.to_ascii_lowercase();
        if !graph::is_stage_name(&name) {
            return Err(format!("\"{}\" of {} cannot be the name of a stage", shown(stage), shown(domain)));
        }
        let refuse = |why: address::AddressError| format!("\"{}\" {why}", shown(domain));
        let before = match (domain, domain.strip_prefix('.')) {
            ("*", _) => self.rest.replace(name),
            ("-", _) => self.without_domain.replace(name),
            (_, Some(parent)) => {
                let parent = address::domain(parent).map_err(refuse)?;
                if parent.starts_with('[') {
                    return Err(format!(
                        "\"{}\" is an address literal, which nothing is below",
                        shown(domain)
                    ));
                }
                self.below.insert(parent, name)
            }
            (_, None) if domain.starts_with("*.") => {
                return Err(format!("\"{}\" is written without its \"*\"", shown(domain)));
            }
            (_, None) => self.exact.insert(address::domain(domain).map_err(refuse)?, name),
        };
        match before {
            Some(before) => Err(format!("{} has a stage already, {before}", shown(domain))),
            None => Ok(()),
        }
    }

    /// The longest entry that matches. No domain is None.
    fn stage(&self, domain: Option<&str>) -> Option<&str> {
        let Some(domain) = domain else { return self.without_domain.as_deref() };
        if let Some(stage) = self.exact.get(domain) {
            return Some(stage);
        }
        let parents = domain.match_indices('.').map(|(dot, _)| &domain[dot + 1..]);
        parents.filter_map(|parent| self.below.get(parent)).map(String::as_str).next()
    }
}

fn shown(text: &str) -> String {
    text::escape(text, SHOWN)
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
