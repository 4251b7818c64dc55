//! The alias maps of a section, and what an address is found under in them.
//!
//! An address is looked for as it is, then without its tag, then by its domain alone; each as the address and, where its
//! domain is local or it has none, as a local name. The most specific of these counts, and of maps that have it the first.
//! Files were read when the stage was; tables are asked for each message, once for all addresses of a level.

use super::super::{StageError, Tables};
use crate::host;
use crate::mail::address::{self, Address};
use crate::mail::alias::{self, Meaning, Wrong};
use crate::proto::conf::{ConfError, Section};
use std::collections::{BTreeMap, BTreeSet};

/// How a table stands in MAPS.
const TABLE: &str = "table:";

/// An address as it is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mailbox {
    /// As it is written in an envelope.
    pub text: String,
    /// What its local part says.
    content: String,
    /// In lower case; none for a local name.
    domain: Option<String>,
}

impl Mailbox {
    /// Any text, whatever it looks like.
    pub fn new(text: &str) -> Mailbox {
        let (local, domain) = address::divide(text);
        Mailbox { text: text.to_owned(), content: address::content(local).into_owned(), domain }
    }
}

/// What is common to all maps of a section.
#[derive(Debug)]
pub struct Rules {
    case_sensitive: bool,
    /// In lower case; the first one completes local names.
    local_domains: Vec<String>,
    delimiter: Option<char>,
}

impl Rules {
    fn read(section: &Section<'_>) -> Result<Rules, ConfError> {
        let mut local_domains = Vec::new();
        for domain in section.get("LOCAL_DOMAINS")?.unwrap_or_default().split_whitespace() {
            let error =
                |why: address::AddressError| section.error("LOCAL_DOMAINS", &format!("{domain:?} {why}"));
            local_domains.push(address::domain(domain).map_err(error)?);
        }
        let value = section.get("RECIPIENT_DELIMITER")?.unwrap_or_default();
        let delimiter =
            address::delimiter(&value).map_err(|why| section.error("RECIPIENT_DELIMITER", &why))?;
        let case_sensitive = section.boolean("CASE_SENSITIVE", false)?;
        Ok(Rules { case_sensitive, local_domains, delimiter })
    }

    fn is_local(&self, mailbox: &Mailbox) -> bool {
        mailbox.domain.as_ref().is_none_or(|domain| self.local_domains.contains(domain))
    }

    fn domain<'a>(&'a self, mailbox: &'a Mailbox) -> Option<&'a str> {
        mailbox.domain.as_ref().or(self.local_domains.first()).map(String::as_str)
    }

    /// User and tag, where there is a tag.
    fn tag<'a>(&self, content: &'a str) -> Option<(&'a str, &'a str)> {
        address::tagged(content, self.delimiter)
    }

    fn key(&self, content: &str, domain: Option<&str>) -> String {
        alias::key(content, domain, self.case_sensitive)
    }

    /// The one text by which it is told whether two addresses are the same to these maps.
    pub fn identity(&self, mailbox: &Mailbox) -> String {
        self.key(&mailbox.content, self.domain(mailbox))
    }

    /// What it is looked for under, the most specific first, each with the tag that was left off for it.
    fn keys<'a>(&self, mailbox: &'a Mailbox) -> Vec<(String, Option<&'a str>)> {
        let domain = self.domain(mailbox);
        let content = mailbox.content.as_str();
        let mut keys = Vec::new();
        let mut under = |content: &str, tag: Option<&'a str>| {
            if content.is_empty() {
                return;
            }
            if domain.is_some() {
                keys.push((self.key(content, domain), tag));
            }
            if self.is_local(mailbox) {
                keys.push((self.key(content, None), tag));
            }
        };
        under(content, None);
        if let Some((user, tag)) = self.tag(content) {
            under(user, Some(tag));
        }
        if domain.is_some() {
            keys.push((self.key("", domain), None));
        }
        keys
    }

    /// A target of `of` as an address: a local name is completed, and the tag that was left off goes on with one that is
    /// local, or of the same domain, and has none itself. Too long with it, it goes without.
    pub fn target(&self, target: &Address, of: &Mailbox, tag: Option<&str>) -> Mailbox {
        let mut mailbox = Mailbox::new(&target.to_string());
        let stays = self.is_local(&mailbox) || mailbox.domain == of.domain;
        let mut local = target.local.clone();
        if let (Some(delimiter), Some(tag), true) = (self.delimiter, tag, stays)
            && self.tag(&mailbox.content).is_none()
        {
            let tagged = format!("{}{delimiter}{tag}", mailbox.content);
            let written = address::local_of(&tagged);
            if written.len() <= address::MAX_LOCAL {
                (local, mailbox.content) = (written, tagged);
            }
        }
        let domain = Some(&target.domain).filter(|domain| !domain.is_empty());
        mailbox.text = match domain.or(self.local_domains.first()) {
            Some(domain) => format!("{local}@{domain}"),
            None => local,
        };
        mailbox.domain = self.domain(&mailbox).map(str::to_owned);
        mailbox
    }
}

#[derive(Debug)]
enum Map {
    File(BTreeMap<String, Meaning>),
    /// By the name of the map.
    Table(String),
}

/// The maps of a section.
#[derive(Debug)]
pub struct Maps {
    pub rules: Rules,
    maps: Vec<Map>,
}

impl Maps {
    pub fn read(section: &Section<'_>) -> Result<Maps, ConfError> {
        let rules = Rules::read(section)?;
        let mut maps = Vec::new();
        for name in section.required("MAPS")?.split_whitespace() {
            let map = match name.strip_prefix(TABLE) {
                Some("") => return Err(section.error("MAPS", "a table has no name")),
                Some(table) => Map::Table(table.to_owned()),
                None if !name.starts_with('/') => {
                    let why = format!("{name:?} is neither an absolute path nor {TABLE}NAME");
                    return Err(section.error("MAPS", &why));
                }
                None => {
                    let text = host::read_table(name)?;
                    let error = |Wrong { line, why }| ConfError { file: name.to_owned(), line, message: why };
                    Map::File(alias::read(&text, rules.case_sensitive).map_err(error)?)
                }
            };
            maps.push(map);
        }
        Ok(Maps { rules, maps })
    }
}

/// What an address stands for, and the tag that was left off to find it.
pub type Found<'a> = (&'a Meaning, Option<&'a str>);

/// Why it is not known what an address stands for.
#[derive(Clone, Copy, Debug)]
pub enum Trouble<'a> {
    /// A row that does not parse.
    Unreadable(&'a str),
    /// There were too many to ask for.
    NotAsked,
}

/// The maps as one message sees them.
pub struct View<'a> {
    pub maps: &'a Maps,
    /// Of the tables by map and key: what is there, or why it cannot be read.
    rows: BTreeMap<(usize, String), Result<Meaning, String>>,
    asked: BTreeSet<String>,
}

impl<'a> View<'a> {
    pub fn new(maps: &'a Maps) -> View<'a> {
        View { maps, rows: BTreeMap::new(), asked: BTreeSet::new() }
    }

    /// Asks the tables for all that these addresses can lead to, level by level: at most `levels`, and at most so many addresses.
    pub fn fetch(
        &mut self,
        rcpt_to: &[String],
        levels: usize,
        most: usize,
        tables: &mut dyn Tables,
    ) -> Result<(), StageError> {
        if self.maps.maps.iter().all(|map| matches!(map, Map::File(_))) {
            return Ok(());
        }
        let mut level: Vec<Mailbox> = rcpt_to.iter().map(|text| Mailbox::new(text)).collect();
        let mut seen = BTreeSet::new();
        for _ in 0..levels {
            level.retain(|mailbox| seen.insert(self.maps.rules.identity(mailbox)));
            if level.is_empty() || seen.len() > most {
                return Ok(());
            }
            self.ask(&level, tables)?;
            level = level.iter().flat_map(|mailbox| self.next(mailbox)).collect();
        }
        Ok(())
    }

    fn ask(&mut self, level: &[Mailbox], tables: &mut dyn Tables) -> Result<(), StageError> {
        let mut keys = Vec::new();
        for (key, _) in level.iter().flat_map(|mailbox| self.maps.rules.keys(mailbox)) {
            // The database holds no such text.
            if !key.contains('\0') && self.asked.insert(key.clone()) {
                keys.push(key);
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        for (place, map) in self.maps.maps.iter().enumerate() {
            let Map::Table(name) = map else { continue };
            for (key, targets) in tables.aliases(name, &keys)? {
                let meaning =
                    alias::row(&targets).map_err(|why| format!("table:{name}, address {key}: {why}"));
                self.rows.insert((place, key), meaning);
            }
        }
        Ok(())
    }

    fn next(&self, mailbox: &Mailbox) -> Vec<Mailbox> {
        match self.find(mailbox) {
            Ok(Some((Meaning::Targets(targets), tag))) => {
                let next = |target: &alias::Target| match target {
                    alias::Target::Address { address, is_final: false } => {
                        Some(self.maps.rules.target(address, mailbox, tag))
                    }
                    alias::Target::Address { is_final: true, .. } | alias::Target::Discard => None,
                };
                targets.iter().filter_map(next).collect()
            }
            Ok(Some((Meaning::Fail(_), _)) | None) | Err(_) => Vec::new(),
        }
    }

    pub fn find<'b>(&'b self, mailbox: &'b Mailbox) -> Result<Option<Found<'b>>, Trouble<'b>> {
        for (key, tag) in self.maps.rules.keys(mailbox) {
            for (place, map) in self.maps.maps.iter().enumerate() {
                let found = match map {
                    Map::File(entries) => entries.get(&key).map(Ok),
                    // Never taken for one that is not there.
                    Map::Table(_) if !key.contains('\0') && !self.asked.contains(&key) => {
                        return Err(Trouble::NotAsked);
                    }
                    Map::Table(_) => self.rows.get(&(place, key.clone())).map(|row| row.as_ref()),
                };
                if let Some(found) = found {
                    return found
                        .map(|meaning| Some((meaning, tag)))
                        .map_err(|why| Trouble::Unreadable(why.as_str()));
                }
            }
        }
        Ok(None)
    }
}
