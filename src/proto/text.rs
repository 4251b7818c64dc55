//! Text for logs and for the database: control bytes escaped, lengths bounded, NUL removed.
//!
//! Invariants: no result of `escape`, `escape_bytes` or `log_value` holds a character that moves a cursor, ends a
//! line or turns the direction of writing, so outside text cannot forge a log line. Escaping twice changes nothing
//! more (a backslash stays one backslash), so an error text may pass through several hands. Work is bounded by the
//! length asked for, not by the length of the input.

use std::fmt::Write;

/// Marks the place where a text was cut.
const CUT: &str = "…";

/// The longest log value, without its quotes.
pub const MAX_LOG_VALUE: usize = 2048;

/// Whether `c` must not reach a terminal or a log as it is: C0, DEL and C1 controls, line and paragraph separators,
/// marks that reorder text (UAX 9) or hide in it, and noncharacters that terminals treat each in its own way.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Text that grows up to a limit; what does not fit leaves the mark instead.
struct Bounded {
    text: String,
    max: usize,
    /// The longest length at a piece's end behind which the mark still fits.
    cut_at: usize,
}

impl Bounded {
    fn new(max: usize) -> Bounded {
        Bounded { text: String::new(), max, cut_at: 0 }
    }

    /// Adds one piece whole, or cuts and returns false.
    fn push(&mut self, piece: &str) -> bool {
        if self.text.len() + piece.len() > self.max {
            self.text.truncate(self.cut_at);
            if self.max >= CUT.len() {
                self.text.push_str(CUT);
            }
            return false;
        }
        self.text.push_str(piece);
        if self.text.len() + CUT.len() <= self.max {
            self.cut_at = self.text.len();
        }
        true
    }

    fn push_char(&mut self, c: char) -> bool {
        self.push(c.encode_utf8(&mut [0; 4]))
    }

    /// Adds `c`, escaped where it is unsafe.
    fn push_escaped(&mut self, c: char) -> bool {
        match c {
            '\n' => self.push("\\n"),
            '\r' => self.push("\\r"),
            '\t' => self.push("\\t"),
            c if !is_unsafe(c) => self.push_char(c),
            c if u32::from(c) < 0x80 => self.push(&format!("\\x{:02x}", u32::from(c))),
            c => self.push(&format!("\\u{{{:x}}}", u32::from(c))),
        }
    }
}

/// `text` with control characters, bidirectional overrides and line separators escaped. The result is at most `max`
/// bytes long; when something was cut it ends in `…` (where `max` has room for it) and no escape is cut in two.
pub fn escape(text: &str, max: usize) -> String {
    let mut out = Bounded::new(max);
    for c in text.chars() {
        if !out.push_escaped(c) {
            break;
        }
    }
    out.text
}

/// As `escape`, for bytes that may not be UTF-8: those become `\xHH`.
pub fn escape_bytes(bytes: &[u8], max: usize) -> String {
    let mut out = Bounded::new(max);
    // No character of the input is longer than what it becomes, so the rest could not fit: stay linear in `max`.
    let reachable = &bytes[..bytes.len().min(max.saturating_add(4))];
    for chunk in reachable.utf8_chunks() {
        let valid = chunk.valid().chars().all(|c| out.push_escaped(c));
        if !valid || !chunk.invalid().iter().all(|byte| out.push(&format!("\\x{byte:02x}"))) {
            break;
        }
    }
    out.text
}

/// A log value: as it is when it is one plain word, else in double quotes with `"` and `\` escaped and unsafe
/// characters as in `escape`. At most `MAX_LOG_VALUE` bytes of it, then `…`.
pub fn log_value(text: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !is_unsafe(c) && !matches!(c, '"' | '\\' | '=');
    if !text.is_empty() && text.len() <= MAX_LOG_VALUE && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut out = Bounded::new(MAX_LOG_VALUE);
    for c in text.chars() {
        let fits = match c {
            '"' => out.push("\\\""),
            '\\' => out.push("\\\\"),
            c => out.push_escaped(c),
        };
        if !fits {
            break;
        }
    }
    let mut quoted = String::with_capacity(out.text.len() + 2);
    // Writing to a String cannot fail.
    let _ = write!(quoted, "\"{}\"", out.text);
    quoted
}

/// Text fit for a text or jsonb column: bytes that are not UTF-8 replaced by U+FFFD, NUL removed, at most `max`
/// bytes (cut at a character, without a mark: the column's text is not for a log alone).
pub fn for_database(bytes: &[u8], max: usize) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        let replacement = if chunk.invalid().is_empty() { "" } else { "\u{fffd}" };
        for c in chunk.valid().chars().chain(replacement.chars()) {
            if c == '\0' {
                continue;
            }
            if out.len() + c.len_utf8() > max {
                return out;
            }
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_names_controls_and_keeps_text() {
        assert_eq!(escape("grün 日本 a\\b \"c\"", 100), "grün 日本 a\\b \"c\"");
        assert_eq!(escape("a\r\nb\tc\0d\x1b[2J\x7f", 100), "a\\r\\nb\\tc\\x00d\\x1b[2J\\x7f");
        assert_eq!(
            escape("\u{85}\u{9b}\u{202e}\u{2028}\u{feff}", 100),
            "\\u{85}\\u{9b}\\u{202e}\\u{2028}\\u{feff}"
        );
    }

    #[test]
    fn escape_cuts_at_a_piece_and_never_exceeds_max() {
        assert_eq!(escape("abcdef", 6), "abcdef");
        assert_eq!(escape("abcdefg", 6), "abc…");
        assert_eq!(escape("ab\u{202e}", 9), "ab…");
        assert_eq!(escape("äöü", 5), "ä…");
        assert_eq!(escape("abc", 2), "");
        assert_eq!(escape("abc", 0), "");
        let samples = ["", "a", "\n\n\n\n", "ä\u{202e}x\0\0\u{1f600}", "\u{2028}\u{2028}", "abcdefghijkl"];
        for text in samples {
            let whole = escape(text, 1000);
            for max in 0..40 {
                let cut = escape(text, max);
                assert!(cut.len() <= max, "{text:?} {max}");
                assert_eq!(cut == whole, whole.len() <= max, "{text:?} {max}");
                assert!(cut == whole || max < CUT.len() || cut.ends_with(CUT), "{text:?} {max}");
                assert!(whole.starts_with(cut.trim_end_matches(CUT)), "{text:?} {max}");
                assert_eq!(cut, escape_bytes(text.as_bytes(), max), "{text:?} {max}");
            }
        }
    }

    #[test]
    fn escaping_twice_changes_nothing() {
        for code in 0..=0x2fff {
            let Some(c) = char::from_u32(code) else { continue };
            let once = escape(&format!("a{c}\\n"), 100);
            assert_eq!(once, escape(&once, 100));
            assert!(!once.chars().any(is_unsafe));
        }
    }

    #[test]
    fn escape_bytes_shows_what_is_not_utf8() {
        assert_eq!(escape_bytes(b"a\xffb\xc3(\n", 100), "a\\xffb\\xc3(\\n");
        assert_eq!(escape_bytes("ü\u{2029}".as_bytes(), 100), "ü\\u{2029}");
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                let shown = escape_bytes(&[first, second, b'z'], 100);
                assert!(!shown.chars().any(is_unsafe), "{first} {second}");
                assert!(shown.ends_with('z'));
            }
        }
        let flood = vec![0xff; 1 << 20];
        assert_eq!(escape_bytes(&flood, 11), "\\xff\\xff…");
    }

    #[test]
    fn log_value_quotes_what_is_no_plain_word() {
        for word in ["a", "user@example.org", "/var/mail", "42", "grün", "a,b;c"] {
            assert_eq!(log_value(word), word);
        }
        assert_eq!(log_value(""), "\"\"");
        assert_eq!(log_value("a b"), "\"a b\"");
        assert_eq!(log_value("a=b"), "\"a=b\"");
        assert_eq!(log_value("a\u{a0}b"), "\"a\u{a0}b\"");
        assert_eq!(log_value("say \"x\\y\"\n"), "\"say \\\"x\\\\y\\\"\\n\"");
        let long = log_value(&"x".repeat(MAX_LOG_VALUE + 1));
        assert_eq!(long.len(), MAX_LOG_VALUE + 2);
        assert!(long.ends_with("…\""));
    }

    #[test]
    fn for_database_replaces_removes_and_cuts() {
        assert_eq!(for_database(b"a\0b\xffc\xe2\x82", 100), "ab\u{fffd}c\u{fffd}");
        assert_eq!(for_database("äöü".as_bytes(), 5), "äö");
        assert_eq!(for_database("line\r\nnext".as_bytes(), 100), "line\r\nnext");
        assert_eq!(for_database(b"\xff\xff", 2), "");
        assert_eq!(for_database(b"\0\0\0", 1), "");
    }
}
