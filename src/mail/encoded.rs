//! Encoded words of header fields (RFC 2047), decoded for display.
//!
//! Known charsets are UTF-8, US-ASCII and ISO-8859-1; a word in another one, or one that is not well formed, stays as
//! it is written. Words are found anywhere, also inside quotes and other words, as most mail programs do. Blanks
//! between two words are no part of the text, and a character may be cut between them.
//!
//! Invariant: linear time. A search for the end of a word stops at the next `?`, wherever that leads.

/// A charset that is decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Charset {
    /// US-ASCII too, whose bytes above 127 are then as wrong as in UTF-8.
    Utf8,
    Latin1,
}

/// `text` with its encoded words decoded; bytes in them that are not of their charset become U+FFFD.
pub fn decode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // The bytes of adjacent words of one charset, not yet turned into characters.
    let mut open: Option<(Charset, Vec<u8>)> = None;
    let mut rest = text;
    while let Some(at) = rest.find("=?") {
        let (before, from) = rest.split_at(at);
        let blank = before.bytes().all(|byte| byte == b' ' || byte == b'\t');
        let Some((charset, bytes, behind)) = word(from) else {
            close(&mut out, &mut open);
            out.push_str(before);
            out.push_str("=?");
            rest = &from[2..];
            continue;
        };
        match &mut open {
            Some((current, collected)) if blank && *current == charset => collected.extend_from_slice(&bytes),
            Some(_) | None => {
                let between_words = blank && open.is_some();
                close(&mut out, &mut open);
                out.push_str(if between_words { "" } else { before });
                open = Some((charset, bytes));
            }
        }
        rest = behind;
    }
    close(&mut out, &mut open);
    out.push_str(rest);
    out
}

/// Turns collected bytes into characters.
fn close(out: &mut String, open: &mut Option<(Charset, Vec<u8>)>) {
    match open.take() {
        Some((Charset::Utf8, bytes)) => out.push_str(&String::from_utf8_lossy(&bytes)),
        Some((Charset::Latin1, bytes)) => out.extend(bytes.into_iter().map(char::from)),
        None => {}
    }
}

/// The word that `text` begins with: its charset, its bytes, and what is behind it.
fn word(text: &str) -> Option<(Charset, Vec<u8>, &str)> {
    let (charset, rest) = text.strip_prefix("=?")?.split_once('?')?;
    let (encoding, rest) = rest.split_once('?')?;
    let (content, rest) = rest.split_once('?')?;
    let behind = rest.strip_prefix('=')?;
    // RFC 2231 allows a language behind the charset.
    let name = charset.split('*').next().unwrap_or_default().to_ascii_lowercase();
    let charset = match name.as_str() {
        "utf-8" | "utf8" | "us-ascii" | "ascii" => Charset::Utf8,
        "iso-8859-1" | "iso8859-1" | "latin1" => Charset::Latin1,
        _ => return None,
    };
    let bytes = match encoding {
        "Q" | "q" => quoted(content.as_bytes()),
        "B" | "b" => base64(content.as_bytes())?,
        _ => return None,
    };
    Some((charset, bytes, behind))
}

/// The Q encoding: `_` is a blank, else as `bytes`. An underscore that is written as a byte is one.
fn quoted(content: &[u8]) -> Vec<u8> {
    bytes(&content.iter().map(|byte| if *byte == b'_' { b' ' } else { *byte }).collect::<Vec<u8>>())
}

/// `=HH` is a byte; an `=` without its digits is kept.
pub(super) fn bytes(content: &[u8]) -> Vec<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let mut out = Vec::with_capacity(content.len());
    let mut at = 0;
    while at < content.len() {
        let high = content.get(at + 1).and_then(digit);
        let low = content.get(at + 2).and_then(digit);
        match (content[at], high, low) {
            (b'=', Some(high), Some(low)) => {
                out.push(high * 16 + low);
                at += 2;
            }
            (byte, _, _) => out.push(byte),
        }
        at += 1;
    }
    out
}

/// Base64 with or without its padding, blanks allowed; None when it holds anything else.
pub(super) fn base64(content: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(content.len() / 4 * 3 + 3);
    let mut bits: u32 = 0;
    let mut count = 0;
    let mut padded = false;
    for byte in content {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                padded = true;
                continue;
            }
            b' ' | b'\t' => continue,
            _ => return None,
        };
        if padded {
            return None;
        }
        bits = (bits << 6 | u32::from(value)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count).to_be_bytes()[3]);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_both_encodings_are_decoded() {
        let cases = [
            ("plain", "plain"),
            ("=?utf-8?q?gr=C3=BCn_x?=", "grün x"),
            ("=?UTF-8?B?Z3LDvG4=?=", "grün"),
            ("=?utf-8?b?Z3LDvG4?=", "grün"),
            ("=?iso-8859-1?Q?gr=FCn?=", "grün"),
            ("=?us-ascii*en?Q?a=3Db?=", "a=b"),
            ("a =?utf-8?q?b?= c", "a b c"),
            (" =?utf-8?q?a?=", " a"),
            ("=?utf-8?q?a?= =? =?utf-8?q?b?=", "a =? b"),
            ("=?utf-8?q?a?= =?utf-8?q?b?=", "ab"),
            ("=?utf-8?q?a?=\t =?iso-8859-1?q?=FC?= x", "aü x"),
            ("=?utf-8?q?=C3?= =?utf-8?q?=BC?=", "ü"),
            ("=?utf-8?q?a?=, =?utf-8?q?b?=", "a, b"),
            ("\"=?utf-8?q?a?=\" <x@y>", "\"a\" <x@y>"),
            ("=?utf-8?q??=x", "x"),
            ("=?utf-8?q?=zz=4?=", "=zz=4"),
            ("=?utf-8?q?=FF?=", "\u{fffd}"),
        ];
        for (text, expected) in cases {
            assert_eq!(decode(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_known_word_stays_as_it_is() {
        for text in [
            "=?",
            "=??=",
            "=?utf-8?q?",
            "=?utf-8?q?a?",
            "=?utf-8?q?a? =",
            "=?koi8-r?q?a?=",
            "=?utf-8?x?a?=",
            "=?utf-8?b?a!b?=",
            "=?utf-8?b?YQ==YQ==?=",
            "?= =?",
            "=?utf-8?=",
            "a =?b c =? d",
        ] {
            assert_eq!(decode(text), text);
        }
        assert_eq!(decode("=?utf-8?q?a?= =?koi8-r?q?b?="), "a =?koi8-r?q?b?=");
        assert_eq!(decode("=?x =?utf-8?q?a?="), "=?x a");
    }

    #[test]
    fn base64_agrees_with_a_bitwise_model() {
        const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for first in (0..=255u8).step_by(5) {
            for length in 0..6usize {
                let bytes: Vec<u8> =
                    (0..length).map(|at| first.wrapping_add(u8::try_from(at * 77).unwrap_or(1))).collect();
                let bits: Vec<u8> =
                    bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
                let encoded: Vec<u8> = bits
                    .chunks(6)
                    .map(|chunk| {
                        let value = (0..6).fold(0, |sum, at| sum * 2 + chunk.get(at).copied().unwrap_or(0));
                        ALPHABET[usize::from(value)]
                    })
                    .collect();
                assert_eq!(base64(&encoded), Some(bytes.clone()));
                let padded = [encoded, vec![b'='; (3 - length % 3) % 3]].concat();
                assert_eq!(base64(&padded), Some(bytes));
            }
        }
    }

    #[test]
    fn every_short_text_is_decoded_without_panic() {
        const TOKENS: &[&str] = &["=?", "?=", "?", "=", "utf-8", "q", "b", " ", "ü", "=FC", "QQ"];
        fn grow(text: &mut String, left: usize) {
            let decoded = decode(text);
            assert!(decoded.len() <= text.len() * 3);
            assert!(text.contains("=?") || decoded == *text);
            if left > 0 {
                for token in TOKENS {
                    let length = text.len();
                    text.push_str(token);
                    grow(text, left - 1);
                    text.truncate(length);
                }
            }
        }
        grow(&mut String::new(), 4);
        grow(&mut String::from("=?utf-8?"), 4);
    }
}
