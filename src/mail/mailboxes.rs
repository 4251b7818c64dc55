//! The mailboxes of a header field such as To (RFC 5322 section 3.4 and its obsolete forms), as real mail has them.
//!
//! Display names and comments are dropped, groups opened, routes reduced to their last address, folds and blanks
//! around `.` and `@` removed. A piece that is no address is an error that names it; the pieces around it still count.
//! A semicolon outside a group separates like a comma, as some mail programs write it.
//!
//! Invariants: linear time, no recursion (comments nest by a count), every input is answered.

use super::address::{self, Address, AddressError};

/// How much of a wrong piece an error shows, in characters.
const SHOWN: usize = 80;

/// The addr-specs of a header field's value such as To: display names, comments, groups, routes and folds dealt with.
/// Each entry is an address or why that piece is none.
pub fn list(value: &str) -> Vec<Result<Address, AddressError>> {
    let mut reader = Reader { value, found: Vec::new(), piece: Piece::default(), start: 0 };
    let mut chars = value.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '(' => reader.comment(&mut chars),
            '"' => reader.quoted(&mut chars),
            '[' => reader.literal(&mut chars),
            ' ' | '\t' | '\r' | '\n' => reader.piece.current().blank = true,
            '<' if reader.piece.inside => reader.piece.spoil("has a \"<\" within a \"<\""),
            '<' if reader.piece.angle.is_some() => {
                reader.piece.spoil("has two addresses without a comma between them")
            }
            '<' => {
                reader.piece.angle = Some(Text::default());
                reader.piece.inside = true;
            }
            '>' if reader.piece.inside => reader.piece.inside = false,
            ',' | ';' | ':' if !reader.piece.inside => reader.separator(c, at),
            c => reader.piece.current().push(c),
        }
    }
    reader.end(value.len());
    reader.found
}

type Chars<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

/// Text whose blanks are kept only where they separate words.
#[derive(Default)]
struct Text {
    text: String,
    blank: bool,
}

impl Text {
    fn push(&mut self, c: char) {
        let joins = |c: char| c == '.' || c == '@';
        if self.blank && !joins(c) && self.text.chars().next_back().is_some_and(|last| !joins(last)) {
            self.text.push(' ');
        }
        self.blank = false;
        self.text.push(c);
    }
}

/// What stands between two separators.
#[derive(Default)]
struct Piece {
    /// All outside angle brackets: the address, or the display name of one that has brackets.
    plain: Text,
    /// What stands in the angle brackets.
    angle: Option<Text>,
    /// Whether the bracket is still open.
    inside: bool,
    /// The first thing that was wrong.
    why: Option<&'static str>,
}

impl Piece {
    fn current(&mut self) -> &mut Text {
        match &mut self.angle {
            Some(angle) if self.inside => angle,
            Some(_) | None => &mut self.plain,
        }
    }

    fn spoil(&mut self, why: &'static str) {
        self.why.get_or_insert(why);
    }
}

struct Reader<'a> {
    value: &'a str,
    found: Vec<Result<Address, AddressError>>,
    piece: Piece,
    /// Where the piece begins in `value`.
    start: usize,
}

impl Reader<'_> {
    /// Passes over a comment, which counts as a blank.
    fn comment(&mut self, chars: &mut Chars<'_>) {
        self.piece.current().blank = true;
        let mut depth = 1usize;
        while let Some((_, c)) = chars.next() {
            match c {
                '\\' => {
                    chars.next();
                }
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
        self.piece.spoil("has a comment that is not closed");
    }

    /// Takes a quoted string with its quotes. A fold within it is one blank.
    fn quoted(&mut self, chars: &mut Chars<'_>) {
        let text = self.piece.current();
        text.push('"');
        while let Some((_, c)) = chars.next() {
            match c {
                '\r' | '\n' => {}
                '\\' => {
                    text.text.push('\\');
                    text.text.extend(chars.next().map(|(_, escaped)| escaped));
                }
                c => text.text.push(c),
            }
            if c == '"' {
                return;
            }
        }
        self.piece.spoil("has a quote that is not closed");
    }

    /// Takes an address literal, or what looks like one in a name; its colons are no group's. It ends where none can go on.
    fn literal(&mut self, chars: &mut Chars<'_>) {
        let text = self.piece.current();
        text.push('[');
        while let Some((_, c)) = chars.next_if(|(_, c)| !matches!(c, ',' | ';' | '>' | '<' | '"')) {
            if !matches!(c, ' ' | '\t' | '\r' | '\n') {
                text.text.push(c);
            }
            if c == ']' {
                return;
            }
        }
    }

    /// A separator outside angle brackets: a colon ends the name of a group, or what looks like one.
    fn separator(&mut self, c: char, at: usize) {
        let named = self.piece.angle.is_none() && !self.piece.plain.text.contains('@');
        if c == ':' && !named {
            self.piece.spoil("has a \":\" behind an address");
        }
        if c == ':' && named {
            self.piece = Piece::default();
        } else {
            self.end(at);
        }
        self.start = at + 1;
    }

    /// Ends the piece before `at`. An empty one is nothing: RFC 5322 section 4.4 lets lists have such.
    fn end(&mut self, at: usize) {
        let mut piece = std::mem::take(&mut self.piece);
        let raw = self.value.get(self.start..at).unwrap_or_default().trim();
        if piece.inside {
            piece.spoil("has a \"<\" without its \">\"");
        }
        let address = match &piece.angle {
            Some(angle) => without_route(&angle.text),
            None => piece.plain.text.as_str(),
        };
        if piece.why.is_none() && piece.angle.is_none() && address.is_empty() {
            return;
        }
        let checked = match piece.why {
            Some(why) => Err(AddressError(String::from(why))),
            None => address::parse(address),
        };
        self.found.push(checked.map_err(|AddressError(why)| {
            let shown: String = raw.chars().take(SHOWN).collect();
            AddressError(format!("{shown:?} {why}"))
        }));
    }
}

/// The address behind a source route `@a,@b:` (RFC 5322 section 4.4), whose domains may be literals with colons.
fn without_route(text: &str) -> &str {
    if !text.starts_with('@') {
        return text;
    }
    let mut literal = false;
    for (at, c) in text.char_indices() {
        match c {
            '[' => literal = true,
            ']' => literal = false,
            ':' if !literal => return &text[at + 1..],
            _ => {}
        }
    }
    text
}

#[cfg(test)]
#[path = "mailboxes_tests.rs"]
mod tests;
