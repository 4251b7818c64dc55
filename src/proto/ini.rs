//! The INI grammar: the lines of a configuration file, and of the files that it inlines, as sections and options.
//!
//! A line is blank, a comment (`#` or `%` first), `[SECTION]`, `OPTION = VALUE` or `@inline@ FILE`; blanks around each
//! part do not count, LF and CRLF both end a line. There are no comments behind a value. Double quotes around a whole
//! value keep its outer blanks; a quote inside is a quote. A section that comes again goes on; of an option that comes
//! again the later value counts. A file that is inlined begins outside any section, and behind it the section of the
//! including file goes on.
//!
//! Invariants: every section and option knows its file and line; sizes and the depth and number of files are bounded.
//! Values are kept as written: `variable` expands them. Files are read by the caller's function alone.

use super::conf::ConfError;
use super::text::escape;
use super::variable::MAX_VALUE;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest text of one file, in bytes.
pub const MAX_TEXT: usize = 1024 * 1024;

/// The longest line, in bytes: a value of `MAX_VALUE` with its option and quotes.
pub const MAX_LINE: usize = MAX_VALUE + 512;

/// The longest name of a section or an option, in bytes.
pub const MAX_NAME: usize = 128;

/// The deepest chain of files that inline each other, the first included.
pub const MAX_DEPTH: usize = 8;

/// The most files in all.
pub const MAX_FILES: usize = 256;

/// How much of a wrong text an error shows, in bytes.
const SHOWN: usize = 60;

/// A line of a file.
#[derive(Clone, Debug)]
pub struct Place {
    pub file: Arc<str>,
    pub line: u32,
}

/// An option's value as written, without its quotes.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its rank among the section's options.
    pub order: usize,
    pub value: String,
    /// No variable in it is looked up.
    pub is_literal: bool,
    pub place: Place,
}

/// The options by upper-case name, and where the section first began.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its rank among the sections.
    pub order: usize,
    pub place: Place,
    pub options: BTreeMap<String, Entry>,
}

/// The sections by lower-case name.
#[derive(Clone, Debug, Default)]
pub struct Ini {
    pub sections: BTreeMap<String, Section>,
}

impl Ini {
    /// The section of that name, begun at `place` if it was not there.
    pub fn begin(&mut self, name: &str, place: &Place) -> &mut Section {
        let order = self.sections.len();
        self.sections.entry(name.to_ascii_lowercase()).or_insert_with(|| Section {
            order,
            place: place.clone(),
            options: BTreeMap::new(),
        })
    }
}

impl Section {
    /// Sets an option; an earlier value is gone, its rank stays.
    pub fn set(&mut self, option: &str, value: &str, place: Place) {
        self.put(option, value, false, place);
    }

    /// Sets an option to what is taken as it is, whatever looks like a variable in it.
    pub fn set_literal(&mut self, option: &str, value: &str, place: Place) {
        self.put(option, value, true, place);
    }

    fn put(&mut self, option: &str, value: &str, is_literal: bool, place: Place) {
        let count = self.options.len();
        let name = option.to_ascii_uppercase();
        let order = self.options.get(&name).map_or(count, |entry| entry.order);
        self.options.insert(name, Entry { order, value: value.to_owned(), is_literal, place });
    }
}

/// Reads `text`, which came from `file`, and what it inlines.
pub fn read(
    file: &str,
    text: &str,
    inline: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Ini, ConfError> {
    let mut reader = Reader { ini: Ini::default(), inline, open: Vec::new(), files: 0 };
    reader.file(file, text)?;
    Ok(reader.ini)
}

/// What one line says.
enum Line<'a> {
    Nothing,
    Section(&'a str),
    Option { name: &'a str, value: &'a str },
    Inline(&'a str),
}

struct Reader<'a> {
    ini: Ini,
    inline: &'a dyn Fn(&str) -> Result<String, String>,
    /// The files being read, outermost first.
    open: Vec<String>,
    files: usize,
}

impl Reader<'_> {
    fn file(&mut self, file: &str, text: &str) -> Result<(), ConfError> {
        let name: Arc<str> = Arc::from(file);
        let mut place = Place { file: Arc::clone(&name), line: 0 };
        if text.len() > MAX_TEXT {
            return Err(place.error(&format!("the file is larger than {MAX_TEXT} bytes")));
        }
        self.open.push(file.to_owned());
        self.files += 1;
        let mut section: Option<&str> = None;
        // An editor's byte order mark is no part of the first line.
        for raw in text.strip_prefix('\u{feff}').unwrap_or(text).split('\n') {
            place.line += 1;
            let line = parse_line(raw.strip_suffix('\r').unwrap_or(raw)).map_err(|why| place.error(&why))?;
            match (line, section) {
                (Line::Nothing, _) => {}
                (Line::Section(name), _) => {
                    self.ini.begin(name, &place);
                    section = Some(name);
                }
                (Line::Option { name, value }, Some(section)) => {
                    self.ini.begin(section, &place).set(name, value, place.clone());
                }
                (Line::Option { name, .. }, None) => {
                    return Err(place.error(&format!("the option {name} stands before any [section]")));
                }
                (Line::Inline(other), _) => self.inlined(other, &place)?,
            }
        }
        self.open.pop();
        Ok(())
    }

    fn inlined(&mut self, other: &str, place: &Place) -> Result<(), ConfError> {
        let path = beside(&place.file, other);
        let shown = escape(&path, MAX_VALUE);
        if self.open.contains(&path) {
            return Err(place.error(&format!("@inline@ {shown}: the file is being read already, a loop")));
        }
        if self.open.len() >= MAX_DEPTH || self.files >= MAX_FILES {
            let why = format!("more than {MAX_FILES} files, or more than {MAX_DEPTH} inside each other");
            return Err(place.error(&format!("@inline@ {shown}: {why}")));
        }
        let text = (self.inline)(&path)
            .map_err(|why| place.error(&format!("@inline@ {shown}: {}", escape(&why, 500))))?;
        self.file(&path, &text)
    }
}

impl Place {
    pub fn error(&self, message: &str) -> ConfError {
        ConfError { file: self.file.to_string(), line: self.line, message: message.to_owned() }
    }
}

/// `other` as seen from the folder of `file`.
fn beside(file: &str, other: &str) -> String {
    match file.rsplit_once('/') {
        Some((folder, _)) if !other.starts_with('/') => format!("{folder}/{other}"),
        Some(_) | None => other.to_owned(),
    }
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// Reads one line without its end; the error is a sentence without its place.
fn parse_line(raw: &str) -> Result<Line<'_>, String> {
    if raw.len() > MAX_LINE {
        return Err(format!("the line is longer than {MAX_LINE} bytes"));
    }
    if let Some(c) = raw.chars().find(|c| c.is_control() && *c != '\t') {
        return Err(format!("the line has the control character {}", escape(&c.to_string(), SHOWN)));
    }
    let line = trim(raw);
    if line.is_empty() || line.starts_with(['#', '%']) {
        return Ok(Line::Nothing);
    }
    if let Some(rest) = line.strip_prefix('[') {
        return section_head(rest).map(Line::Section);
    }
    if line.starts_with('@') {
        return inline_line(line).map(Line::Inline);
    }
    let Some((name, value)) = line.split_once('=') else {
        let shown = escape(line, SHOWN);
        return Err(format!("\"{shown}\" is neither [SECTION] nor OPTION = VALUE nor a comment"));
    };
    let name = trim(name);
    let named = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if !named || name.len() > MAX_NAME {
        let shown = escape(name, SHOWN);
        return Err(format!(
            "\"{shown}\" is no name of an option: up to {MAX_NAME} letters, digits, _ - and ."
        ));
    }
    let value = unquoted(trim(value))?;
    if value.len() > MAX_VALUE {
        return Err(format!("the value of {name} is longer than {MAX_VALUE} bytes"));
    }
    Ok(Line::Option { name, value })
}

/// The name in a section's line, given what is behind its `[`.
fn section_head(rest: &str) -> Result<&str, String> {
    let Some((name, behind)) = rest.split_once(']') else {
        return Err(format!("the section \"[{}\" has no \"]\"", escape(rest, SHOWN)));
    };
    if !behind.is_empty() {
        return Err(format!("\"{}\" stands behind a section's \"]\"", escape(trim(behind), SHOWN)));
    }
    let name = trim(name);
    if name.is_empty() || name.len() > MAX_NAME || name.contains('[') {
        return Err(format!(
            "\"[{}]\" is no section: 1 to {MAX_NAME} bytes without brackets",
            escape(name, SHOWN)
        ));
    }
    Ok(name)
}

/// The file that a directive names; `@inline@` is the only one.
fn inline_line(line: &str) -> Result<&str, String> {
    let (directive, file) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    if !directive.eq_ignore_ascii_case("@inline@") {
        return Err(format!("\"{}\" is unknown; there is \"@inline@ FILE\"", escape(directive, SHOWN)));
    }
    match unquoted(trim(file))? {
        "" => Err(String::from("\"@inline@\" names no file")),
        file => Ok(file),
    }
}

/// A value without the double quotes around it, if it has them.
fn unquoted(value: &str) -> Result<&str, String> {
    let Some(rest) = value.strip_prefix('"') else {
        return Ok(value);
    };
    rest.strip_suffix('"').ok_or_else(|| {
        let shown = escape(value, SHOWN);
        format!(
            "the value {shown} begins with a quote but does not end with one (a comment needs its own line)"
        )
    })
}
