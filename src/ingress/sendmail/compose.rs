//! The message as it is stored: our fields in front, the original byte for byte behind them.
//!
//! `Received` always, then `Date`, `Message-ID` and `From` where the original has none. The one change to the original
//! is that `-t` takes the blind-copy fields out. Everything put into a field here was checked or is made plain first:
//! no line end can come in by a name or an address.

use crate::mail::address::{self, Address};
use crate::mail::{header, split, trace};
use std::fmt::Write as _;

/// A display name is cut there.
const MAX_NAME_CHARS: usize = 128;
/// RFC 2047 section 2: an encoded word has at most 75 characters, 12 of them around its text.
const MAX_ENCODED_TEXT: usize = 63;

/// What the fields are made of.
pub struct Facts<'a> {
    pub user: &'a str,
    pub uid: u32,
    pub host: &'a str,
    pub domain: &'a str,
    /// The envelope sender; empty: null.
    pub sender: &'a str,
    pub full_name: Option<&'a str>,
    /// Since 1970.
    pub now_us: i64,
    pub pid: u32,
}

/// The whole message. `remove_bcc` is for `-t`.
pub fn compose(original: &[u8], facts: &Facts<'_>, remove_bcc: bool) -> Vec<u8> {
    let original = without_mbox_line(original);
    let block = header_block(original);
    let mut message = added_fields(block, facts).into_bytes();
    message.reserve(original.len());
    let body = &original[block.len()..];
    if remove_bcc {
        without_blind_copies(block, &mut message);
    } else {
        message.extend_from_slice(block);
    }
    // Without a header of its own the original is all body, and must not read on as ours.
    if block.is_empty() && !body.is_empty() && !body.starts_with(b"\r\n") {
        message.extend_from_slice(b"\r\n");
    }
    message.extend_from_slice(body);
    message
}

/// The addresses of To, Cc and Bcc; of a message that is sent on, those of Resent-To, Resent-Cc and Resent-Bcc alone.
/// An error is a clause about one piece of a field.
pub fn header_recipients(original: &[u8]) -> Vec<Result<Address, String>> {
    let fields = header::fields(header_block(without_mbox_line(original)));
    let is_resent = fields.iter().any(|field| is_one_of(field, &["Resent-To", "Resent-Cc", "Resent-Bcc"]));
    let names = if is_resent { ["Resent-To", "Resent-Cc", "Resent-Bcc"] } else { ["To", "Cc", "Bcc"] };
    let mut found = Vec::new();
    for field in fields.iter().filter(|field| is_one_of(field, &names)) {
        for piece in address::list(&String::from_utf8_lossy(field.value)) {
            found.push(match piece {
                // What was not UTF-8 has become this character; in a display name it does no harm.
                Ok(address) if address.to_string().contains('\u{fffd}') => {
                    Err("an address is not UTF-8".into())
                }
                Ok(address) => Ok(address),
                Err(error) => Err(error.0),
            });
        }
    }
    found
}

/// The original without the `From ` lines of an mbox file above its first field: what they say is the envelope's, and below
/// our fields they would end the header for a strict reader. Above anything else such a line is text.
fn without_mbox_line(original: &[u8]) -> &[u8] {
    let is_mbox = |line: &[u8]| line.starts_with(b"From ") || line.starts_with(b">From ");
    let mut rest = original;
    while is_mbox(rest) {
        let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
        rest = &rest[end..];
    }
    if has_field_first(rest) { rest } else { original }
}

/// The original's own header: empty when its first line is no field.
fn header_block(original: &[u8]) -> &[u8] {
    if has_field_first(original) { split::split(original).0 } else { &[] }
}

fn has_field_first(text: &[u8]) -> bool {
    let first = text.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    !header::fields(first).is_empty()
}

fn is_one_of(field: &header::Field<'_>, names: &[&str]) -> bool {
    names.iter().any(|wanted| field.name.eq_ignore_ascii_case(wanted.as_bytes()))
}

/// The block without Bcc and Resent-Bcc, folds included.
fn without_blind_copies(block: &[u8], out: &mut Vec<u8>) {
    let mut copied = 0;
    for field in header::fields(block).iter().filter(|field| is_one_of(field, &["Bcc", "Resent-Bcc"])) {
        let start = field.whole.as_ptr() as usize - block.as_ptr() as usize;
        out.extend_from_slice(&block[copied..start]);
        copied = start + field.whole.len();
    }
    out.extend_from_slice(&block[copied..]);
}

fn added_fields(block: &[u8], facts: &Facts<'_>) -> String {
    let fields = header::fields(block);
    let is_missing = |name: &str| !fields.iter().any(|field| is_one_of(field, &[name]));
    let now = facts.now_us.div_euclid(1_000_000);
    let id = format!("{:x}.{:x}", facts.now_us, facts.pid);
    let mut added = trace::received_local(facts.user, facts.uid, facts.host, &id, now);
    if is_missing("Date") {
        let _ = write!(added, "Date: {}\r\n", trace::date(now));
    }
    if is_missing("Message-ID") {
        let _ = write!(added, "Message-ID: {}\r\n", trace::message_id(facts.now_us, facts.pid, facts.domain));
    }
    if is_missing("From") {
        let own = format!("{}@{}", facts.user, facts.domain);
        let address = if facts.sender.is_empty() { own.as_str() } else { facts.sender };
        match facts.full_name.map(phrase).filter(|name| !name.is_empty()) {
            Some(name) => {
                let _ = write!(added, "From: {name} <{address}>\r\n");
            }
            None => {
                let _ = write!(added, "From: {address}\r\n");
            }
        }
    }
    added
}

/// A display name: as it is, as a quoted string, or as encoded words (RFC 2047, folded between them).
fn phrase(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_NAME_CHARS).collect();
    let plain = plain.trim();
    if !plain.is_ascii() {
        return encoded_words(plain);
    }
    if plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" !#$%&'*+-/=?^_`{|}~".contains(&byte)) {
        return plain.to_owned();
    }
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}

fn encoded_words(text: &str) -> String {
    let mut words = vec![String::new()];
    for c in text.chars() {
        let mut encoded = String::new();
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            let _ = match byte {
                b' ' => write!(encoded, "_"),
                _ if byte.is_ascii_alphanumeric() => write!(encoded, "{}", char::from(byte)),
                _ => write!(encoded, "={byte:02X}"),
            };
        }
        match words.last_mut() {
            Some(word) if word.len() + encoded.len() <= MAX_ENCODED_TEXT => word.push_str(&encoded),
            _ => words.push(encoded),
        }
    }
    let words: Vec<String> = words.iter().map(|word| format!("=?UTF-8?Q?{word}?=")).collect();
    words.join("\r\n ")
}

#[cfg(test)]
#[path = "compose_tests.rs"]
mod tests;
