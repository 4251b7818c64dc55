//! Variables in configuration values: `${NAME}` and `${NAME:-DEFAULT}`.
//!
//! A name is looked up in the section `[paths]` (in any case) and then in the environment (as written). The value of
//! a `[paths]` option is expanded in turn; while it is, its own name means the environment's variable, so
//! `HOME = ${HOME:-/var/lib/pepsi}` is no loop. As in a shell, `:-` stands in for a variable that is unset or empty. A
//! default may hold variables. What comes from the environment is taken as it is. A `$` without a brace is a `$`.
//!
//! Invariants: the depth, the number of variables and the length of the result are bounded, whatever the values say.

use super::conf::{ConfError, Origin};
use super::ini::{Entry, Section};
use super::text::escape;
use std::collections::BTreeMap;

/// The deepest that a default or a `[paths]` value may nest.
const MAX_NESTING: usize = 16;

/// The most variables that one value may come to use: bounds values that multiply each other.
const MAX_USES: usize = 1000;

/// The longest value, in bytes, before and after its variables are expanded.
pub const MAX_VALUE: usize = 16 * 1024;

/// How much of a wrong name an error shows, in bytes.
const SHOWN: usize = 60;

/// Where names are looked up, and which of them stay as they are.
pub struct Scope<'a> {
    pub paths: Option<&'a Section>,
    pub environment: &'a BTreeMap<String, String>,
    pub keep: &'a [&'a str],
}

/// The names that `value` may ask for, defaults included; wrong ones too, which ask for nothing.
pub fn names(value: &str) -> impl Iterator<Item = &str> {
    value.split("${").skip(1).map(|rest| {
        let end = rest.find(|c: char| !is_name_char(c)).unwrap_or(rest.len());
        &rest[..end]
    })
}

/// Expands `entry`, which `origin` names in errors.
pub fn expand(scope: &Scope<'_>, origin: Origin<'_>, entry: &Entry) -> Result<String, ConfError> {
    let mut expansion = Expansion { scope, open: Vec::new(), uses: 0 };
    let text = if entry.is_literal {
        let mut text = String::new();
        push(&mut text, &entry.value, origin)?;
        text
    } else {
        expansion.text(origin, &entry.value, 0)?
    };
    match text.chars().find(|c| c.is_control() && *c != '\t') {
        Some(c) => Err(origin.error(&format!("has the control character {}", escape(&c.to_string(), SHOWN)))),
        None => Ok(text),
    }
}

/// One value on its way.
struct Expansion<'a> {
    scope: &'a Scope<'a>,
    /// The `[paths]` options being expanded, outermost first.
    open: Vec<String>,
    uses: usize,
}

impl Expansion<'_> {
    fn text(&mut self, origin: Origin<'_>, value: &str, depth: usize) -> Result<String, ConfError> {
        if depth > MAX_NESTING {
            return Err(origin.error(&format!("has variables nested deeper than {MAX_NESTING}")));
        }
        let mut out = String::new();
        let mut rest = value;
        while let Some((literal, behind)) = rest.split_once("${") {
            let Some(close) = closing_brace(behind) else {
                return Err(origin.error("has a \"${\" without its \"}\""));
            };
            push(&mut out, literal, origin)?;
            let part = self.variable(origin, &behind[..close], depth)?;
            push(&mut out, &part, origin)?;
            rest = &behind[close + 1..];
        }
        push(&mut out, rest, origin)?;
        Ok(out)
    }

    /// One variable, given as what stands between its braces.
    fn variable(&mut self, origin: Origin<'_>, inside: &str, depth: usize) -> Result<String, ConfError> {
        self.uses += 1;
        if self.uses > MAX_USES {
            return Err(origin.error(&format!("comes to more than {MAX_USES} variables")));
        }
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if name.is_empty()
            || !name.chars().all(is_name_char)
            || name.starts_with(|c: char| c.is_ascii_digit())
        {
            let shown = escape(name, SHOWN);
            return Err(origin.error(&format!(
                "has \"${{{shown}}}\", which is no variable; write ${{NAME}} or ${{NAME:-DEFAULT}}"
            )));
        }
        if self.scope.keep.contains(&name) {
            return match default {
                None => Ok(format!("${{{name}}}")),
                Some(_) => Err(origin.error(&format!("has a default for ${{{name}}}, which is always set"))),
            };
        }
        match (self.look_up(name, depth)?, default) {
            (Some(value), None) => Ok(value),
            (Some(value), Some(_)) if !value.is_empty() => Ok(value),
            (Some(_) | None, Some(default)) => self.text(origin, default, depth + 1),
            (None, None) => Err(origin.error(&format!(
                "needs the variable {}, which is neither in [paths] nor in the environment{}; \
                 set it, or write ${{{}:-DEFAULT}}",
                escape(name, SHOWN),
                if origin.is_override() { " as far as the file names it" } else { "" },
                escape(name, SHOWN),
            ))),
        }
    }

    fn look_up(&mut self, name: &str, depth: usize) -> Result<Option<String>, ConfError> {
        let option = name.to_ascii_uppercase();
        let entry = self.scope.paths.and_then(|paths| paths.options.get(&option));
        match entry.filter(|_| !self.open.contains(&option)) {
            None => Ok(self.scope.environment.get(name).cloned()),
            Some(entry) => {
                let origin = Origin { section: "paths", option: &option, place: &entry.place };
                self.open.push(option.clone());
                let value = self.text(origin, &entry.value, depth + 1)?;
                self.open.pop();
                Ok(Some(value))
            }
        }
    }
}

fn push(out: &mut String, part: &str, origin: Origin<'_>) -> Result<(), ConfError> {
    if out.len() + part.len() > MAX_VALUE {
        return Err(origin.error(&format!("is longer than {MAX_VALUE} bytes")));
    }
    out.push_str(part);
    Ok(())
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Where the brace stands that closes an opened variable; variables inside have their own.
fn closing_brace(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut depth = 1;
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"${") {
            depth += 1;
            at += 1;
        } else if bytes[at] == b'}' {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
        at += 1;
    }
    None
}
