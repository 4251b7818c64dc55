//! The plain text that a message says: its body, or the first part of that kind, decoded (RFC 2045, RFC 2046 section 5.1).
//!
//! For text that a program reads, not for display: what is not known for sure (another charset, a part within a part) is
//! refused with a reason, and never guessed. Parts are looked for one level deep, where mail programs put their plain text.
//!
//! Invariants: linear time, whatever the bytes. Lines of the result end in LF.

use super::encoded;
use super::header;

/// The longest body that is read, in octets.
pub const MAX_BODY: usize = 256 * 1024;

/// The text, or why there is none, as a clause about the message.
pub fn plain(headers: &[u8], body: &[u8]) -> Result<String, &'static str> {
    if body.len() > MAX_BODY {
        return Err("is too long");
    }
    let content = ContentType::of(headers);
    if !content.kind.starts_with("multipart/") {
        return decoded(&content, headers, body);
    }
    let boundary = content.boundary.filter(|boundary| !boundary.is_empty()).ok_or(NO_TEXT)?;
    for part in parts(body, boundary.as_bytes()) {
        let (headers, body) = split(part);
        let content = ContentType::of(headers);
        if content.kind == TEXT {
            return decoded(&content, headers, body);
        }
    }
    Err(NO_TEXT)
}

const TEXT: &str = "text/plain";
const NO_TEXT: &str = "has no part in plain text";

/// Of a Content-Type field what matters here.
struct ContentType {
    /// In lower case; plain text where the field is missing.
    kind: String,
    /// In lower case; empty where it is missing.
    charset: String,
    boundary: Option<String>,
}

impl ContentType {
    fn of(headers: &[u8]) -> ContentType {
        let value = header::text(headers, "Content-Type").unwrap_or_default();
        let mut pieces = parameters(&value).into_iter();
        let kind = pieces.next().map(|piece| piece.to_ascii_lowercase()).filter(|kind| !kind.is_empty());
        let kind = kind.unwrap_or_else(|| TEXT.to_owned());
        let mut content = ContentType { kind, charset: String::new(), boundary: None };
        for piece in pieces {
            match piece.split_once('=') {
                Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
                    content.charset = unquoted(value).to_ascii_lowercase();
                }
                Some((name, value)) if name.trim().eq_ignore_ascii_case("boundary") => {
                    content.boundary = Some(unquoted(value));
                }
                Some(_) | None => {}
            }
        }
        content
    }
}

/// What the semicolons outside quotes separate, trimmed.
fn parameters(value: &str) -> Vec<&str> {
    let (mut quoted, mut escaped, mut start) = (false, false, 0);
    let mut pieces = Vec::new();
    for (at, c) in value.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ';' if !quoted => {
                pieces.push(value[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(value[start..].trim());
    pieces
}

fn unquoted(value: &str) -> String {
    let value = value.trim();
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut escaped = false;
    let keep = |c: &char| {
        escaped = *c == '\\' && !escaped;
        !escaped
    };
    inner.chars().filter(keep).collect()
}

/// The parts between the delimiter lines. One that is not closed ends with the body.
fn parts<'a>(body: &'a [u8], boundary: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    let mut start = None;
    let mut at = 0;
    for line in body.split_inclusive(|byte| *byte == b'\n') {
        let behind = line.strip_prefix(b"--").and_then(|rest| rest.strip_prefix(boundary));
        let end = behind.map(<[u8]>::trim_ascii_end).filter(|rest| rest.is_empty() || *rest == b"--");
        if let Some(end) = end {
            parts.extend(start.map(|start| &body[start..at]));
            start = Some(at + line.len()).filter(|_| end.is_empty());
            if start.is_none() {
                break;
            }
        }
        at += line.len();
    }
    parts.extend(start.map(|start| &body[start..]));
    parts
}

/// A part at its first empty line, whatever ends its lines.
fn split(part: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    for line in part.split_inclusive(|byte| *byte == b'\n') {
        if line == b"\n" || line == b"\r\n" {
            return (&part[..at], &part[at + line.len()..]);
        }
        at += line.len();
    }
    (part, &[])
}

fn decoded(content: &ContentType, headers: &[u8], body: &[u8]) -> Result<String, &'static str> {
    if content.kind != TEXT {
        return Err(NO_TEXT);
    }
    let encoding = header::text(headers, "Content-Transfer-Encoding").unwrap_or_default();
    let bytes = match encoding.to_ascii_lowercase().as_str() {
        "" | "7bit" | "8bit" | "binary" => body.to_vec(),
        "quoted-printable" => quoted_printable(body),
        "base64" => {
            let text: Vec<u8> = body.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
            encoded::base64(&text).ok_or("has a text that is not the base64 it says it is")?
        }
        _ => return Err("has a text in an encoding that is not known here"),
    };
    let text = match content.charset.as_str() {
        "" | "utf-8" | "utf8" | "us-ascii" | "ascii" => {
            String::from_utf8(bytes).map_err(|_| "has a text that is not in its charset")?
        }
        "iso-8859-1" | "iso8859-1" | "latin1" => bytes.into_iter().map(char::from).collect(),
        _ => return Err("has a text in a charset that is not known here; use UTF-8"),
    };
    Ok(text.replace("\r\n", "\n"))
}

/// RFC 2045 section 6.7; an `=` that is neither a byte nor the end of a line is kept, as are blanks at the end of a line.
fn quoted_printable(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    for line in body.split_inclusive(|byte| *byte == b'\n') {
        let text = line.trim_ascii_end();
        match text.strip_suffix(b"=") {
            Some(text) => out.extend(encoded::bytes(text)),
            None => out.extend(encoded::bytes(line)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(headers: &str, body: &[u8], expected: &str) {
        assert_eq!(plain(headers.as_bytes(), body).as_deref(), Ok(expected), "{headers}");
    }

    #[test]
    fn a_body_is_decoded_by_what_its_header_says() {
        for (headers, body) in [
            ("", &b"gr\xc3\xbcn\r\nx=3D"[..]),
            ("Content-Type: text/plain\r\n", b"gr\xc3\xbcn\nx=3D"),
            ("Content-Type: TEXT/Plain; format=flowed; Charset=\"UTF-8\"\r\n", b"gr\xc3\xbcn\nx=3D"),
            ("Content-Type: text/plain; charset=iso-8859-1\r\n", b"gr\xfcn\nx=3D"),
            ("Content-Transfer-Encoding: Quoted-Printable\r\n", b"gr=C3=\r\n=BCn\r\nx=3D3D="),
            ("Content-Transfer-Encoding: quoted-printable\r\n", b"gr=c3=bc=  \r\nn\r\nx=3D3=\r\nD"),
            ("Content-Transfer-Encoding: base64\r\n", b"Z3LDvG4K\r\neD0zRA==\r\n"),
        ] {
            good(headers, body, "grün\nx=3D");
        }
    }

    #[test]
    fn the_first_plain_part_is_taken() {
        let headers = "Content-Type: multipart/alternative;\r\n boundary=\"a b\"\r\n";
        let body = "preamble\r\n--a b\r\nContent-Type: text/html\r\n\r\n<p>\r\n--a b  \r\n\
                    Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ==\r\n--a b--\r\nend";
        good(headers, body.as_bytes(), "a");
        let headers = "Content-Type: multipart/mixed; boundary=x\r\n";
        good(headers, b"--x\n\nno header\n--x--\n", "no header\n");
        good(headers, b"--x\n\nnot closed", "not closed");
        good(headers, b"--x\n\n--xy\n--x\n", "--xy\n");
        for body in
            [&b""[..], b"--x--\n--x\n\ntext", b"--x\nContent-Type: text/html\n\n<p>\n--x--", b"--xx\n\na\n"]
        {
            assert_eq!(plain(headers.as_bytes(), body), Err(NO_TEXT), "{body:?}");
        }
    }

    #[test]
    fn what_is_not_known_for_sure_is_refused() {
        for (headers, body, clause) in [
            ("Content-Type: text/html\r\n", &b"x"[..], "no part in plain text"),
            ("Content-Type: multipart/mixed\r\n", b"x", "no part in plain text"),
            ("Content-Type: multipart/mixed; boundary=\r\n", b"--\n\nx", "no part in plain text"),
            ("Content-Type: text/plain; charset=koi8-r\r\n", b"x", "charset"),
            ("Content-Type: text/plain; charset=utf-8\r\n", b"\xff", "not in its charset"),
            ("Content-Transfer-Encoding: base64\r\n", b"a!", "base64"),
            ("Content-Transfer-Encoding: x-uuencode\r\n", b"x", "encoding"),
            ("", &vec![b'x'; MAX_BODY + 1], "too long"),
        ] {
            let why = plain(headers.as_bytes(), body).unwrap_err();
            assert!(why.contains(clause), "{headers}: {why}");
        }
    }

    #[test]
    fn every_short_message_is_answered() {
        const TOKENS: &[&[u8]] = &[
            b"--x",
            b"--",
            b"\n",
            b"\r\n",
            b"=",
            b"=3",
            b"D",
            b"\xff",
            b"Content-Type: multipart/mixed; boundary=x",
            b" ",
        ];
        fn grow(body: &mut Vec<u8>, left: usize) {
            for headers in [
                &b"Content-Type: multipart/mixed; boundary=x\n"[..],
                b"Content-Transfer-Encoding: quoted-printable\n",
            ] {
                if let Ok(text) = plain(headers, body) {
                    assert!(text.len() <= body.len());
                }
            }
            if left > 0 {
                for token in TOKENS {
                    let length = body.len();
                    body.extend_from_slice(token);
                    grow(body, left - 1);
                    body.truncate(length);
                }
            }
        }
        grow(&mut Vec::new(), 4);
    }
}
