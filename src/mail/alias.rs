//! Alias maps as aliases(5) has them: `NAME: TARGET, TARGET`, a line that begins with a blank goes on, `#` begins a comment line.
//!
//! A name is an address, a local name, or `@DOMAIN` for all else of a domain. A target is an address, a local name, either of
//! them behind a `\` (it stands for nothing more), `:discard:` or `/dev/null`; or `:fail: TEXT` is the only one. Names and
//! targets may be quoted. Programs, files and `:include:` are refused: a map can start nothing and open nothing.
//!
//! Invariants: every address of a map has passed `address::parse`; what does not parse is an error that names its line. A
//! key is one text for all ways to write an address. Linear time.

use super::address::{self, Address};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The longest text of `:fail:`, in octets: it goes into a mail to the sender.
pub const MAX_TEXT: usize = 500;

/// How much of a wrong piece an error shows, in characters.
const SHOWN: usize = 60;

/// What an address stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// At least one.
    Targets(Vec<Target>),
    /// It takes no mail; what a sender is told, perhaps nothing.
    Fail(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Address {
        address: Address,
        /// It is not looked up again.
        is_final: bool,
    },
    Discard,
}

/// What is wrong, and the line where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub line: u32,
    pub why: String,
}

/// The key of an address: domain and, unless `case_sensitive`, local part in lower case. No domain is a local name, no local
/// part stands for all of the domain.
pub fn key(content: &str, domain: Option<&str>, case_sensitive: bool) -> String {
    let content = if case_sensitive { Cow::Borrowed(content) } else { Cow::Owned(content.to_lowercase()) };
    let local = if content.is_empty() { String::new() } else { address::local_of(&content) };
    domain.map_or_else(|| local.clone(), |domain| format!("{local}@{domain}"))
}

/// The entries of a map by their keys.
pub fn read(text: &str, case_sensitive: bool) -> Result<BTreeMap<String, Meaning>, Wrong> {
    let mut map = BTreeMap::new();
    let mut lines: BTreeMap<String, u32> = BTreeMap::new();
    for entry in entries(text)? {
        let wrong = |why: String| Wrong { line: entry.line, why };
        let name = entry.name.trim();
        let key = name_key(name, case_sensitive).map_err(|why| wrong(format!("{} {why}", shown(name))))?;
        if let Some(line) = lines.insert(key.clone(), entry.line) {
            return Err(wrong(format!("{} has an entry already, in line {line}", shown(name))));
        }
        let meaning = meaning(&entry.value).map_err(|(at, why)| Wrong { line: entry.line_of(at), why })?;
        map.insert(key, meaning);
    }
    Ok(map)
}

/// What a row of a table says: each text is one target, or several with commas.
pub fn row(texts: &[String]) -> Result<Meaning, String> {
    match texts {
        [only] => meaning(only).map_err(|(_, why)| why),
        several => {
            let mut targets = Vec::new();
            for text in several {
                match meaning(text).map_err(|(_, why)| why)? {
                    Meaning::Targets(more) => targets.extend(more),
                    Meaning::Fail(_) => return Err(fail_is_alone()),
                }
            }
            if targets.is_empty() { Err(no_target()) } else { Ok(Meaning::Targets(targets)) }
        }
    }
}

/// A logical line.
struct Entry<'a> {
    name: &'a str,
    /// What stands behind the colon, its physical lines joined.
    value: String,
    line: u32,
    /// Where each further physical line begins in `value`.
    parts: Vec<(usize, u32)>,
}

impl Entry<'_> {
    fn line_of(&self, at: usize) -> u32 {
        self.parts.iter().rev().find(|(start, _)| *start <= at).map_or(self.line, |(_, line)| *line)
    }
}

fn entries(text: &str) -> Result<Vec<Entry<'_>>, Wrong> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    // A byte order mark would be part of the first name.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |why: &str| Wrong { line: number, why: format!("{} {why}", shown(line)) };
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        if line.starts_with([' ', '\t']) {
            let Some(entry) = entries.last_mut() else {
                return Err(wrong("goes on, and nothing stands before it"));
            };
            entry.value.push(' ');
            entry.parts.push((entry.value.len(), number));
            entry.value.push_str(line.trim());
            continue;
        }
        let colon = colon(line).ok_or_else(|| wrong("has no colon behind a name"))?;
        let value = line[colon + 1..].trim().to_owned();
        entries.push(Entry { name: &line[..colon], value, line: number, parts: Vec::new() });
    }
    Ok(entries)
}

/// The colon that ends the name: not one in quotes or in an address literal.
fn colon(line: &str) -> Option<usize> {
    let (mut quoted, mut escaped, mut literal) = (false, false, false);
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '[' if !quoted => literal = true,
            ']' if !quoted => literal = false,
            ':' if !quoted && !literal => return Some(at),
            _ => {}
        }
    }
    None
}

fn name_key(name: &str, case_sensitive: bool) -> Result<String, String> {
    if name == "*" {
        return Err("is no name; write @DOMAIN for all else of a domain".into());
    }
    if let Some(domain) = name.strip_prefix('@') {
        let domain = address::domain(domain).map_err(|error| error.0)?;
        return Ok(key("", Some(&domain), case_sensitive));
    }
    let address = address::parse(name).map_err(|error| error.0)?;
    let domain = Some(address.domain_lower()).filter(|domain| !domain.is_empty());
    match address::content(&address.local) {
        content if content.is_empty() => Err("has an empty local part".into()),
        content => Ok(key(&content, domain.as_deref(), case_sensitive)),
    }
}

/// What stands behind the colon. The error says where in it.
fn meaning(value: &str) -> Result<Meaning, (usize, String)> {
    if let Some(text) = fail_text(value.trim()) {
        // A line break in it, from a table, would end a line of the mail that says it.
        let text: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if text.len() > MAX_TEXT {
            return Err((0, format!("the text of :fail: is longer than {MAX_TEXT} octets")));
        }
        return Ok(Meaning::Fail(text));
    }
    let mut targets = Vec::new();
    for (at, piece) in pieces(value) {
        if !piece.is_empty() {
            targets.push(target(piece).map_err(|why| (at, format!("{} {why}", shown(piece))))?);
        }
    }
    if targets.is_empty() { Err((0, no_target())) } else { Ok(Meaning::Targets(targets)) }
}

fn no_target() -> String {
    "there is no target".into()
}

fn fail_is_alone() -> String {
    ":fail: is the only target where it is one".into()
}

fn fail_text(value: &str) -> Option<&str> {
    const WORD: &str = ":fail:";
    let word = value.get(..WORD.len())?;
    word.eq_ignore_ascii_case(WORD).then(|| &value[WORD.len()..])
}

/// What the commas outside quotes separate, trimmed, each with its place.
fn pieces(value: &str) -> Vec<(usize, &str)> {
    let mut pieces = Vec::new();
    let (mut quoted, mut escaped, mut start) = (false, false, 0);
    for (at, c) in value.char_indices().chain([(value.len(), ',')]) {
        match c {
            _ if escaped && at < value.len() => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' if !quoted || at == value.len() => {
                let piece = &value[start..at];
                let blanks = piece.len() - piece.trim_start().len();
                pieces.push((start + blanks, piece.trim()));
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces
}

fn target(piece: &str) -> Result<Target, String> {
    // Programs and files are quoted as a rule, since they have blanks.
    let content = address::content(piece);
    if content.eq_ignore_ascii_case(":discard:") || content == "/dev/null" {
        return Ok(Target::Discard);
    }
    let lower = content.to_ascii_lowercase();
    let special = [
        ("|", "runs a program, which no alias may do here"),
        (":include:", "includes a file, which no alias may do here"),
        (":fail:", "stands beside other targets, and :fail: is the only one"),
        (":", "is neither :discard: nor an address"),
        ("/", "writes to a file, which no alias may do here"),
    ];
    let found = special.iter().find(|(start, _)| lower.starts_with(start));
    if let Some((_, why)) = found.filter(|(start, _)| *start != "/" || !piece.contains('@')) {
        return Err(String::from(*why));
    }
    let (text, is_final) = match piece.strip_prefix('\\') {
        Some(text) => (text, true),
        None => (piece, false),
    };
    let address = address::parse(text).map_err(|error| error.0)?;
    Ok(Target::Address { address, is_final })
}

fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(SHOWN).collect::<String>())
}

#[cfg(test)]
#[path = "alias_tests.rs"]
mod tests;
