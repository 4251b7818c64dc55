//! The configuration grammar: INI sections and options, variables, durations, each value with its file and line.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

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
pub struct Conf {}

/// One section of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    conf: &'a Conf,
}

impl Conf {
    /// Parses `text`, which came from `file` (used in errors alone; `@inline@` names are relative to its folder).
    pub fn parse(file: &str, text: &str, sources: &Sources<'_>) -> Result<Conf, ConfError> {
        let _ = (file, text, sources.variable, sources.inline);
        unimplemented!()
    }
    /// The section of that name in any case, or None.
    pub fn section(&self, name: &str) -> Option<Section<'_>> {
        let _ = name;
        unimplemented!()
    }
    /// All sections in the order of the file.
    pub fn sections(&self) -> Vec<Section<'_>> {
        unimplemented!()
    }
    /// Lays one row of `config_override` over the file; errors about it then name `config_override`, line 0.
    pub fn overlay(&mut self, section: &str, option: &str, value: &str) {
        let _ = (section, option, value);
        unimplemented!()
    }
}

impl<'a> Section<'a> {
    /// The section's name in lower case.
    pub fn name(&self) -> &'a str {
        let _ = self.conf;
        unimplemented!()
    }
    /// The value with its variables expanded. None when it is not there; an empty value is `Some("")`.
    pub fn get(&self, option: &str) -> Result<Option<String>, ConfError> {
        let _ = option;
        unimplemented!()
    }
    /// As `get`, but the variables named in `keep` (lower case) stay as they are, for a template filled in later.
    pub fn template(&self, option: &str, keep: &[&str]) -> Result<Option<String>, ConfError> {
        let _ = (option, keep);
        unimplemented!()
    }
    /// As `get`, an error when it is missing or empty.
    pub fn required(&self, option: &str) -> Result<String, ConfError> {
        let _ = option;
        unimplemented!()
    }
    /// `yes` or `no` (any case).
    pub fn boolean(&self, option: &str, default: bool) -> Result<bool, ConfError> {
        let _ = (option, default);
        unimplemented!()
    }
    /// `5 s`, `2 min`, `120 h`, sums such as `1 h 30 min`, and `forever` (Duration::MAX).
    pub fn duration(&self, option: &str, default: Duration) -> Result<Duration, ConfError> {
        let _ = (option, default);
        unimplemented!()
    }
    /// A decimal number within `range`.
    pub fn number(&self, option: &str, default: u64, range: RangeInclusive<u64>) -> Result<u64, ConfError> {
        let _ = (option, default, range);
        unimplemented!()
    }
    /// The names of the options that are set, upper case, in order.
    pub fn options(&self) -> Vec<&'a str> {
        unimplemented!()
    }
    /// An error that points at `option`, or at the section's head when the option is not set.
    pub fn error(&self, option: &str, message: &str) -> ConfError {
        let _ = (option, message);
        unimplemented!()
    }
    /// One error for each option that is not in `known` (upper case).
    pub fn unknown(&self, known: &[&str]) -> Vec<ConfError> {
        let _ = known;
        unimplemented!()
    }
}
