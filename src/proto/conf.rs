//! The configuration: sections and options with typed values, each with its file and line, and the overlay.
//!
//! `ini` reads the lines, `variable` expands `${NAME}` when a value is asked for, `duration` reads durations. The
//! environment is asked while the file is parsed, for the variables that the file names and for no other: a row of
//! `config_override` can use those, but cannot bring the rest of the process's environment (a password) to light.
//!
//! Invariants: section names are lower case, option names upper case, and looked up in any case. No accessor panics.

use super::ini::{self, Entry, Ini, Place};
use super::text::escape;
use super::{duration, variable};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// What errors name as their file: about a row of the overlay, and about what the owner of an address has set.
const OVERRIDE: &str = "config_override";
pub const SETTINGS: &str = "settings";

/// How much of a wrong value an error shows, in bytes.
const SHOWN: usize = 60;

/// One thing wrong in one place; displays as `FILE:LINE: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfError {
    pub file: String,
    pub line: u32,
    pub message: String,
}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// What the grammar asks of the outside: variables, and the text of `@inline@ FILE`.
pub struct Sources<'a> {
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    pub inline: &'a dyn Fn(&str) -> Result<String, String>,
}

/// A parsed configuration, file plus overlay. Names are case-insensitive.
#[derive(Clone, Debug, Default)]
pub struct Conf {
    ini: Ini,
    /// The environment's variables that the file names, as far as they are set.
    environment: BTreeMap<String, String>,
}

/// One section of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    conf: &'a Conf,
    name: &'a str,
    data: &'a ini::Section,
}

/// Where a value stands, for errors about it.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    pub section: &'a str,
    pub option: &'a str,
    pub place: &'a Place,
}

impl Origin<'_> {
    /// The error `FILE:LINE: [section] OPTION: message`; an empty option means the section.
    pub fn error(&self, message: &str) -> ConfError {
        let blank = if self.option.is_empty() { "" } else { " " };
        self.place.error(&format!("[{}]{blank}{}: {message}", self.section, self.option))
    }
    /// Whether the value comes from the overlay.
    pub fn is_override(&self) -> bool {
        self.place.line == 0
    }
}

/// The bytes of a configuration file as text; the error names the line of the first byte that is not UTF-8.
pub fn decode(file: &str, bytes: Vec<u8>) -> Result<String, ConfError> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let lines = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        let line = u32::try_from(lines).unwrap_or(u32::MAX - 1) + 1;
        let message = format!("the byte \\x{:02x} is not UTF-8", error.as_bytes()[at]);
        ConfError { file: file.to_owned(), line, message }
    })
}

impl Conf {
    /// Parses `text`, which came from `file` (used in errors alone; `@inline@` names are relative to its folder).
    pub fn parse(file: &str, text: &str, sources: &Sources<'_>) -> Result<Conf, ConfError> {
        let ini = ini::read(file, text, sources.inline)?;
        let mut environment = BTreeMap::new();
        for entry in ini.sections.values().flat_map(|section| section.options.values()) {
            for name in variable::names(&entry.value) {
                if name.is_empty() || environment.contains_key(name) {
                    continue;
                }
                if let Some(value) = (sources.variable)(name) {
                    environment.insert(name.to_owned(), value);
                }
            }
        }
        Ok(Conf { ini, environment })
    }
    /// The section of that name in any case, or None.
    pub fn section(&self, name: &str) -> Option<Section<'_>> {
        let (name, data) = self.ini.sections.get_key_value(&name.to_ascii_lowercase())?;
        Some(Section { conf: self, name, data })
    }
    /// All sections in the order of the file.
    pub fn sections(&self) -> Vec<Section<'_>> {
        let mut sections: Vec<Section<'_>> =
            self.ini.sections.iter().map(|(name, data)| Section { conf: self, name, data }).collect();
        sections.sort_by_key(|section| section.data.order);
        sections
    }
    /// The sections that are not the same in `old`, or are in one of the two alone: by values as they are written.
    pub fn changed<'a>(&'a self, old: &'a Conf) -> Vec<&'a str> {
        let names: BTreeSet<&str> =
            self.ini.sections.keys().chain(old.ini.sections.keys()).map(String::as_str).collect();
        let values = |conf: &'a Conf, name: &str| {
            let section = conf.ini.sections.get(name)?;
            Some(section.options.iter().map(|(option, entry)| (option, &entry.value)).collect::<Vec<_>>())
        };
        names.into_iter().filter(|name| values(self, name) != values(old, name)).collect()
    }
    /// Lays one row of `config_override` over the file; errors about it then name `config_override`, line 0. The value
    /// is taken as it is, quotes and blanks included; its variables are those of `[paths]` and those of the
    /// environment that the file names.
    pub fn overlay(&mut self, section: &str, option: &str, value: &str) {
        let place = Place { file: Arc::from(OVERRIDE), line: 0 };
        self.ini.begin(section, &place).set(option, value, place.clone());
    }
    /// Lays what the owner of an address has set over the section; errors about it then name `settings`, line 0. Whatever looks
    /// like a variable in it stays as it is: an owner is to see nothing of the host's.
    pub fn overlay_owned(&mut self, section: &str, option: &str, value: &str) {
        let place = Place { file: Arc::from(SETTINGS), line: 0 };
        self.ini.begin(section, &place).set_literal(option, value, place.clone());
    }
}

impl<'a> Section<'a> {
    /// The configuration that it is part of.
    pub fn conf(&self) -> &'a Conf {
        self.conf
    }
    /// The section's name in lower case.
    pub fn name(&self) -> &'a str {
        self.name
    }
    /// The value with its variables expanded. None when it is not there; an empty value is `Some("")`.
    pub fn get(&self, option: &str) -> Result<Option<String>, ConfError> {
        self.template(option, &[])
    }
    /// As `get`, but the variables named in `keep` (lower case) stay as they are, for a template filled in later.
    pub fn template(&self, option: &str, keep: &[&str]) -> Result<Option<String>, ConfError> {
        let Some((option, entry)) = self.entry(option) else {
            return Ok(None);
        };
        let paths = self.conf.ini.sections.get("paths");
        let scope = variable::Scope { paths, environment: &self.conf.environment, keep };
        let origin = Origin { section: self.name, option, place: &entry.place };
        variable::expand(&scope, origin, entry).map(Some)
    }
    /// As `get`, an error when it is missing or empty.
    pub fn required(&self, option: &str) -> Result<String, ConfError> {
        match self.get(option)? {
            Some(value) if !value.is_empty() => Ok(value),
            Some(_) => Err(self.error(option, "is empty, but must be set")),
            None => Err(self.error(option, "is missing")),
        }
    }
    /// `yes` or `no` (any case).
    pub fn boolean(&self, option: &str, default: bool) -> Result<bool, ConfError> {
        self.typed(option, default, |value| {
            if value.eq_ignore_ascii_case("yes") {
                Ok(true)
            } else if value.eq_ignore_ascii_case("no") {
                Ok(false)
            } else {
                Err(format!("\"{}\" is neither yes nor no", escape(value, SHOWN)))
            }
        })
    }
    /// `5 s`, `2 min`, `120 h`, sums such as `1 h 30 min`, and `forever` (Duration::MAX).
    pub fn duration(&self, option: &str, default: Duration) -> Result<Duration, ConfError> {
        self.typed(option, default, duration::parse)
    }
    /// A decimal number within `range`.
    pub fn number(&self, option: &str, default: u64, range: RangeInclusive<u64>) -> Result<u64, ConfError> {
        self.typed(option, default, |value| {
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let shown = escape(value, SHOWN);
            let expected = format!("a whole number from {} to {}", range.start(), range.end());
            match value.parse() {
                Ok(number) if digits && range.contains(&number) => Ok(number),
                Ok(_) | Err(_) => Err(format!("\"{shown}\" is not {expected}")),
            }
        })
    }
    /// The names of the options that are set, upper case, in order.
    pub fn options(&self) -> Vec<&'a str> {
        let mut names: Vec<(usize, &'a str)> =
            self.data.options.iter().map(|(name, entry)| (entry.order, name.as_str())).collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name).collect()
    }
    /// An error that points at `option`, or at the section's head when the option is not set. It displays as
    /// `FILE:LINE: [section] OPTION: message`.
    pub fn error(&self, option: &str, message: &str) -> ConfError {
        let upper = option.to_ascii_uppercase();
        let place = self.data.options.get(&upper).map_or(&self.data.place, |entry| &entry.place);
        Origin { section: self.name, option: &upper, place }.error(message)
    }
    /// One error for each option that is not in `known` (upper case).
    pub fn unknown(&self, known: &[&str]) -> Vec<ConfError> {
        let unknown = self.options().into_iter().filter(|option| !known.contains(option));
        unknown.map(|option| self.error(option, "is no option of this section")).collect()
    }

    fn entry(&self, option: &str) -> Option<(&'a str, &'a Entry)> {
        let (name, entry) = self.data.options.get_key_value(&option.to_ascii_uppercase())?;
        Some((name, entry))
    }

    fn typed<T>(
        &self,
        option: &str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfError> {
        match self.get(option)? {
            None => Ok(default),
            Some(value) => parse(&value).map_err(|why| self.error(option, &why)),
        }
    }
}

#[cfg(test)]
#[path = "conf_tests.rs"]
mod tests;
