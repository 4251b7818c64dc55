//! Header fields of a block: found, unfolded, decoded for display; never failing on any bytes.
//!
//! Lines end at an LF. A field begins with its name, printable ASCII without a blank or a colon, perhaps blanks (an
//! obsolete form), and a colon; lines that begin with a blank or a tab belong to what is before them. An empty line
//! ends the block even where it ends in a bare LF: once the message is on disk with LF ends, every reader sees the
//! header end there.
//!
//! Invariants: linear time; the slices of a `Field` are parts of the block, and `whole` of all fields do not overlap.

use super::encoded;

/// One field as it stands in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// As written, without the colon.
    pub name: &'a [u8],
    /// All behind the colon up to the final line end, folds included.
    pub value: &'a [u8],
    /// The whole field with its line end, for cutting it out.
    pub whole: &'a [u8],
}

/// The fields in order; lines that are no field are passed over.
pub fn fields(block: &[u8]) -> Vec<Field<'_>> {
    walk(block).collect()
}

/// The first field of that name in any case: unfolded, trimmed, bytes that are not UTF-8 replaced, NUL removed, with
/// encoded words (RFC 2047, UTF-8, US-ASCII and ISO-8859-1) decoded. Other control characters, also from within an
/// encoded word, become blanks: the text is one line. None when there is none.
pub fn text(block: &[u8], name: &str) -> Option<String> {
    let field = walk(block).find(|field| field.name.eq_ignore_ascii_case(name.as_bytes()))?;
    let decoded = encoded::decode(&String::from_utf8_lossy(&unfold(field.value)));
    let clean = decoded.chars().filter(|c| *c != '\0').map(|c| if c.is_control() { ' ' } else { c });
    Some(clean.collect::<String>().trim().to_owned())
}

/// Whether a program has made it (RFC 3834 section 5, RFC 2919, RFC 2369, and what was used before these).
pub fn is_automatic(block: &[u8]) -> bool {
    fields(block).iter().any(|field| {
        let value = String::from_utf8_lossy(field.value).trim().to_ascii_lowercase();
        let word = value.split([';', '(', ' ', '\t', '\r', '\n']).next().unwrap_or_default();
        match field.name.to_ascii_lowercase().as_slice() {
            b"auto-submitted" => word != "no",
            b"precedence" => ["bulk", "junk", "list", "auto_reply"].contains(&word),
            b"x-autoreply" | b"x-autorespond" => word != "no",
            b"list-id" | b"list-unsubscribe" => true,
            _ => false,
        }
    })
}

/// A value without its folds: the line end before a blank goes, the blank stays (RFC 5322 section 2.2.3).
fn unfold(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for line in value.split_inclusive(|byte| *byte == b'\n') {
        out.extend_from_slice(without_line_end(line));
    }
    out
}

fn without_line_end(line: &[u8]) -> &[u8] {
    match line.strip_suffix(b"\n") {
        Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
        None => line,
    }
}

/// The fields one by one. Each line is looked at once.
fn walk(block: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let mut rest = block;
    std::iter::from_fn(move || {
        while !rest.is_empty() && !without_line_end(first_line(rest)).is_empty() {
            let mut length = first_line(rest).len();
            while rest[length..].starts_with(b" ") || rest[length..].starts_with(b"\t") {
                length += first_line(&rest[length..]).len();
            }
            let (whole, behind) = rest.split_at(length);
            rest = behind;
            if let Some(field) = as_field(whole) {
                return Some(field);
            }
        }
        None
    })
}

/// The first line with its end.
fn first_line(text: &[u8]) -> &[u8] {
    match text.iter().position(|byte| *byte == b'\n') {
        Some(at) => &text[..=at],
        None => text,
    }
}

/// A line with its folds as a field, if it is one.
fn as_field(whole: &[u8]) -> Option<Field<'_>> {
    let is_name = |byte: &u8| (33..=126).contains(byte) && *byte != b':';
    let length = whole.iter().position(|byte| !is_name(byte))?;
    let (name, behind) = whole.split_at(length);
    let blanks = behind.iter().position(|byte| *byte != b' ' && *byte != b'\t')?;
    let value = behind[blanks..].strip_prefix(b":")?;
    if name.is_empty() { None } else { Some(Field { name, value: without_line_end(value), whole }) }
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
