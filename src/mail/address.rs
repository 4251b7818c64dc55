//! Addresses of an envelope: the mailbox of RFC 5321 section 4.1.2, with UTF-8 (RFC 6531). `list` in `mailboxes`
//! reads those of a header field.
//!
//! Invariants: an `Address` holds no control character, no line end, no NUL and no `@` or blank outside quotes, so it
//! can stand in a header, a log line or an SMTP command; its `Display` parses to the same address. Linear time, after
//! a bound on the length. What a path on disk may hold is not decided here.

use super::srs;
use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

pub use super::mailboxes::list;

/// RFC 5321 section 4.5.3.1.1, in octets.
pub const MAX_LOCAL: usize = 64;

/// RFC 5321 section 4.5.3.1.3 less the angle brackets, in octets. The 255 of a domain (section 4.5.3.1.2) are more than
/// this leaves it.
pub const MAX_ADDRESS: usize = 254;

/// RFC 1035 section 2.3.4; in characters, since the encoded form of a UTF-8 label is not known here.
const MAX_LABEL: usize = 63;

/// How much of a wrong value an error shows, in characters.
const SHOWN: usize = 60;

/// What a local part without quotes may hold besides letters and digits (RFC 5322 section 3.2.3, and the dot).
const SIGNS: &str = "!#$%&'*+-/=?^_`{|}~.";

/// An envelope address that was checked, split at its last `@` outside quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// As written, with its quotes if it has any.
    pub local: String,
    /// As written, without trailing dot; empty for a bare local name.
    pub domain: String,
}

/// Why an address is refused, as a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(pub String);

impl Address {
    /// The domain in the form in which domains are compared.
    pub fn domain_lower(&self) -> String {
        self.domain.to_lowercase()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.local)?;
        if self.domain.is_empty() { Ok(()) } else { write!(f, "@{}", self.domain) }
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks an envelope address: dot-string or quoted local part (at most 64 octets), domain or address literal (254 with
/// all before it), UTF-8 allowed (RFC 6531), no control characters, no NUL, no line end; surrounding `<>` allowed. A bare
/// local name is allowed. Source routes are refused: RFC 5321 appendix C gives them no meaning any more. The local part of
/// a rewritten sender (`srs`) may be longer, since that carries another address.
pub fn parse(text: &str) -> Result<Address, AddressError> {
    let address = parse_long(text)?;
    if address.local.len() > MAX_LOCAL && !srs::is_rewritten(&address.local) {
        return Err(AddressError(format!("has a local part longer than {MAX_LOCAL} octets")));
    }
    Ok(address)
}

/// As `parse`, with a local part of any length within the 254 octets.
pub fn parse_long(text: &str) -> Result<Address, AddressError> {
    check(text).map_err(AddressError)
}

/// An address with a domain in the form in which addresses are compared where case does not count: in lower case, with
/// quotes only where they have to be, without trailing dot.
pub fn folded(text: &str) -> Result<String, AddressError> {
    let Address { local, domain } = parse_long(text)?;
    if domain.is_empty() {
        return Err(AddressError(String::from("has no domain")));
    }
    Ok(format!("{}@{domain}", local_of(&content(&local))).to_lowercase())
}

fn check(text: &str) -> Result<Address, String> {
    let bare = match (text.starts_with('<'), text.ends_with('>')) {
        (true, true) => &text[1..text.len() - 1],
        (false, false) => text,
        (true, false) | (false, true) => {
            return Err(String::from("has a \"<\" or \">\" without its other half"));
        }
    };
    if bare.is_empty() {
        return Err(String::from("is empty"));
    }
    if bare.len() > MAX_ADDRESS + 1 {
        return Err(format!("is longer than {MAX_ADDRESS} octets"));
    }
    if let Some(c) = bare.chars().find(|c| c.is_control()) {
        return Err(format!("has the control character {}", c.escape_default()));
    }
    if bare.starts_with('@') {
        let route = bare.contains(':');
        let why = if route {
            "is a source route; give the last address alone"
        } else {
            "has nothing before its \"@\""
        };
        return Err(String::from(why));
    }
    let end = if bare.starts_with('"') { quoted_end(bare)? } else { dotted_end(bare)? };
    let (local, behind) = bare.split_at(end);
    let domain = match behind.strip_prefix('@') {
        Some(domain) => check_domain(domain)?,
        None if behind.is_empty() => "",
        None => return Err(String::from("has something between its closing quote and its \"@\"")),
    };
    if local.len() + 1 + domain.len() > MAX_ADDRESS {
        return Err(format!("is longer than {MAX_ADDRESS} octets"));
    }
    Ok(Address { local: local.to_owned(), domain: domain.to_owned() })
}

/// A domain or an address literal in the form in which domains are compared: in lower case, without trailing dot.
pub fn domain(text: &str) -> Result<String, AddressError> {
    if text.len() > MAX_ADDRESS {
        return Err(AddressError(format!("is longer than {MAX_ADDRESS} octets")));
    }
    check_domain(text).map(str::to_lowercase).map_err(AddressError)
}

/// Any text as local part and domain, split at its last `@` outside quotes and not checked further: to find something by,
/// never to write. The domain is in the form in which domains are compared; None where there is no `@`.
pub fn divide(text: &str) -> (&str, Option<String>) {
    let quoted = if text.starts_with('"') { closing_quote(text).unwrap_or(0) } else { 0 };
    match text[quoted..].rfind('@') {
        Some(at) => {
            let (local, domain) = (&text[..quoted + at], &text[quoted + at + 1..]);
            (local, Some(domain.strip_suffix('.').unwrap_or(domain).to_lowercase()))
        }
        None => (text, None),
    }
}

/// What a local part says, without the quotes and backslashes that quote it: these alone make no other mailbox (RFC 5321
/// section 4.1.2). What is not well quoted stays as it is.
pub fn content(local: &str) -> Cow<'_, str> {
    if !local.starts_with('"') || closing_quote(local) != Some(local.len()) {
        return Cow::Borrowed(local);
    }
    let mut content = String::new();
    let mut escaped = false;
    for c in local[1..local.len() - 1].chars() {
        escaped = c == '\\' && !escaped;
        if !escaped {
            content.push(c);
        }
    }
    Cow::Owned(content)
}

/// The sign between user and tag in a local part, as an option names it; None where that is empty. The error is a clause.
pub fn delimiter(text: &str) -> Result<Option<char>, String> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (None, _) => Ok(None),
        (Some(sign), None) if SIGNS.contains(sign) => Ok(Some(sign)),
        (Some(_), _) => {
            let shown: String = text.escape_debug().take(SHOWN).collect();
            Err(format!("\"{shown}\" is not one of the signs that a local part may have"))
        }
    }
}

/// User and tag of a local part's content, where it has a tag.
pub fn tagged(content: &str, delimiter: Option<char>) -> Option<(&str, &str)> {
    content.split_once(delimiter?).filter(|(user, _)| !user.is_empty())
}

/// A text as a local part: in quotes where it has to be.
pub fn local_of(content: &str) -> String {
    if is_dot_string(content) { content.to_owned() } else { quoted(content) }
}

fn is_dot_string(text: &str) -> bool {
    !text.is_empty() && dotted_end(text) == Ok(text.len())
}

fn quoted(content: &str) -> String {
    format!("\"{}\"", content.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Behind the quote that closes the one in front.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Where a quoted local part ends, behind its closing quote.
fn quoted_end(text: &str) -> Result<usize, String> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            c if c != ' ' && c.is_whitespace() => return Err(blank(c)),
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Ok(at + 1),
            _ => {}
        }
    }
    Err(String::from("has a quote that is not closed"))
}

/// Where a local part without quotes ends: at the `@` or the end of the text.
fn dotted_end(text: &str) -> Result<usize, String> {
    let end = text.find('@').unwrap_or(text.len());
    let local = &text[..end];
    for c in local.chars() {
        if c.is_whitespace() {
            return Err(blank(c));
        }
        if c.is_ascii() && !c.is_ascii_alphanumeric() && !SIGNS.contains(c) {
            return Err(format!("has a \"{c}\" outside quotes"));
        }
    }
    if local.starts_with('.') || local.ends_with('.') || local.contains("..") {
        return Err(String::from("has a dot at the edge of its local part, or two in a row (quote it)"));
    }
    Ok(end)
}

fn blank(c: char) -> String {
    if c == ' ' {
        String::from("has a blank in it")
    } else {
        format!("has the blank {} in it", c.escape_default())
    }
}

/// A domain or an address literal, without its trailing dot.
fn check_domain(text: &str) -> Result<&str, String> {
    if let Some(rest) = text.strip_prefix('[') {
        let inner = rest.strip_suffix(']').ok_or("has an address literal without its \"]\"")?;
        let v6 =
            inner.get(..5).filter(|tag| tag.eq_ignore_ascii_case("IPv6:")).map(|tag| &inner[tag.len()..]);
        let good = match v6 {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => inner.parse::<Ipv4Addr>().is_ok(),
        };
        let why = "has an address literal that is neither [IPv4] nor [IPv6:address]";
        return if good { Ok(text) } else { Err(String::from(why)) };
    }
    let domain = text.strip_suffix('.').unwrap_or(text);
    if domain.is_empty() {
        return Err(String::from("has no domain behind its \"@\""));
    }
    for label in domain.split('.') {
        check_label(label)?;
    }
    Ok(domain)
}

fn check_label(label: &str) -> Result<(), String> {
    if label.is_empty() {
        return Err(String::from("has an empty label in its domain"));
    }
    if label.chars().count() > MAX_LABEL {
        return Err(format!("has a label longer than {MAX_LABEL} characters in its domain"));
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err(String::from("has a hyphen at the edge of a label in its domain"));
    }
    // Underscores are no host name but are met in mail. Of UTF-8, what some readers would take for a dot or a blank is
    // refused: U+3002, U+FF0E and U+FF61 are dots to IDNA (RFC 3490 section 3.1).
    let known = |c: char| match c {
        c if c.is_ascii() => c.is_ascii_alphanumeric() || c == '-' || c == '_',
        c => !c.is_whitespace() && !matches!(c, '\u{3002}' | '\u{ff0e}' | '\u{ff61}'),
    };
    match label.chars().find(|c| !known(*c)) {
        Some('@') => Err(String::from("has a second \"@\"; quote the local part if it is meant")),
        Some(c) => Err(format!("has {} in its domain", c.escape_debug())),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
