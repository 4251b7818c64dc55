//! The message as it comes on standard input: bounded, with CRLF line ends, up to its end or a lone dot.
//!
//! Only line ends change: LF becomes CRLF, CRLF stays, and a CR elsewhere is content like any other byte. NUL is refused
//! (RFC 5322 section 4) but for what declares itself binary: behind a `Content-Transfer-Encoding: binary`, the header's
//! own or a part's, any octet is allowed (RFC 2045 section 2.9).

use super::{Refused, refuse};
use crate::exit;
use std::io::{ErrorKind, Read};

const CHUNK: usize = 64 * 1024;

/// Reads to the end of `input`, or to a line with a single dot where `dot_ends`. `limit` is in octets with CRLF.
pub fn read_message(input: &mut dyn Read, limit: usize, dot_ends: bool) -> Result<Vec<u8>, Refused> {
    let mut message = Message {
        bytes: Vec::new(),
        line_start: 0,
        line: 1,
        limit,
        dot_ends,
        in_header: true,
        is_binary: false,
    };
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return refuse(exit::IO, format!("cannot read the message: {error}")),
        };
        if message.push(&chunk[..length])? {
            return Ok(message.bytes);
        }
    }
    if dot_ends && message.current_line() == b"." {
        message.bytes.truncate(message.line_start);
    }
    Ok(message.bytes)
}

struct Message {
    bytes: Vec<u8>,
    /// Where the line begins that is not complete yet.
    line_start: usize,
    line: u64,
    limit: usize,
    dot_ends: bool,
    /// No empty line came yet.
    in_header: bool,
    /// The header or a part has declared that any octet may follow.
    is_binary: bool,
}

/// Whether a line is the field by which a message or a part says that its octets are arbitrary.
fn declares_binary(line: &[u8]) -> bool {
    let mut halves = line.splitn(2, |byte| *byte == b':');
    let (Some(name), Some(value)) = (halves.next(), halves.next()) else { return false };
    name.trim_ascii_end().eq_ignore_ascii_case(b"Content-Transfer-Encoding")
        && value.trim_ascii().eq_ignore_ascii_case(b"binary")
}

impl Message {
    fn current_line(&self) -> &[u8] {
        &self.bytes[self.line_start..]
    }

    /// Takes bytes in; true when the lone dot came, which with all behind it is no part of the message.
    fn push(&mut self, chunk: &[u8]) -> Result<bool, Refused> {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            if (self.in_header || !self.is_binary) && piece.contains(&0) {
                return refuse(exit::DATA, format!("the message holds a NUL byte in line {}", self.line));
            }
            let (text, is_complete) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            self.bytes.extend_from_slice(text);
            if is_complete {
                if self.current_line().last() != Some(&b'\r') {
                    self.bytes.push(b'\r');
                }
                self.bytes.push(b'\n');
                if self.dot_ends && self.current_line() == b".\r\n" {
                    self.bytes.truncate(self.line_start);
                    return Ok(true);
                }
                self.in_header &= self.current_line() != b"\r\n";
                self.is_binary |= declares_binary(self.current_line());
                self.line_start = self.bytes.len();
                self.line += 1;
            }
            if self.bytes.len() > self.limit {
                return refuse(
                    exit::DATA,
                    format!("the message is longer than the limit of {} bytes", self.limit),
                );
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out `text` in pieces of `size` bytes, with an interruption before each.
    struct Trickle<'a>(&'a [u8], usize, bool);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.2 = !self.2;
            if self.2 {
                return Err(ErrorKind::Interrupted.into());
            }
            let length = self.1.min(self.0.len()).min(buffer.len());
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    fn read(text: &[u8], dot_ends: bool) -> Result<Vec<u8>, Refused> {
        let whole = read_message(&mut &text[..], 100, dot_ends);
        for size in 1..4 {
            assert_eq!(
                read_message(&mut Trickle(text, size, false), 100, dot_ends),
                whole,
                "in pieces of {size}"
            );
        }
        whole
    }

    #[test]
    fn line_ends_become_crlf_and_nothing_else_changes() {
        for (text, expected) in [
            (&b""[..], &b""[..]),
            (b"a\nb", b"a\r\nb"),
            (b"a\r\nb\n\n", b"a\r\nb\r\n\r\n"),
            (b"\n\r\n", b"\r\n\r\n"),
            (b"a\rb\r", b"a\rb\r"),
            (b"a\r\r\n", b"a\r\r\n"),
            (b"\xff\x1b\x01\n", b"\xff\x1b\x01\r\n"),
        ] {
            assert_eq!(read(text, false).expect("taken"), expected, "{text:?}");
        }
    }

    #[test]
    fn a_lone_dot_ends_the_message_only_where_it_should() {
        for (text, expected) in [
            (&b"a\n.\nb\n"[..], &b"a\r\n"[..]),
            (b"a\n.\r\nb\n", b"a\r\n"),
            (b"a\n.", b"a\r\n"),
            (b".", b""),
            (b"a\n..\n. \n.x\n", b"a\r\n..\r\n. \r\n.x\r\n"),
            (b"a.\n", b"a.\r\n"),
            (b"a\r.\nb", b"a\r.\r\nb"),
        ] {
            assert_eq!(read(text, true).expect("taken"), expected, "{text:?}");
        }
        assert_eq!(read(b"a\n.\nb\n.", false).expect("taken"), b"a\r\n.\r\nb\r\n.");
        assert_eq!(read(b"a\n.\n\0", true).expect("what is behind the dot is not looked at"), b"a\r\n");
    }

    #[test]
    fn the_limit_is_exact_and_nul_is_refused_by_line() {
        let full = [b'x'; 98].iter().chain(b"\n").copied().collect::<Vec<u8>>();
        assert_eq!(read(&full, false).expect("98 octets and CRLF").len(), 100);
        let over = read(&[&full[..], b"y"].concat(), false).expect_err("one more");
        assert_eq!((over.code, over.message.contains("limit of 100 bytes")), (exit::DATA, true));
        let nul = read(b"a\nb\0c\n", false).expect_err("NUL");
        assert_eq!((nul.code, nul.message.ends_with("line 2")), (exit::DATA, true));
    }

    #[test]
    fn nul_is_taken_only_behind_a_declaration_of_binary_and_an_empty_line() {
        for text in [
            &b"Content-Transfer-Encoding: binary\n\n\0\n\0"[..],
            b"content-transfer-encoding : BINARY \r\n\r\na\0b",
            b"X: y\n\n--1\nContent-Transfer-Encoding:binary\n\n\0T\0",
        ] {
            assert!(read(text, false).expect("binary").contains(&0), "{text:?}");
        }
        for text in [
            &b"Content-Transfer-Encoding: binary\nSubject: \0\n\n"[..],
            b"Content-Transfer-Encoding: 8bit\n\n\0",
            b"X: y\n\n\0\nContent-Transfer-Encoding: binary\n",
            b"X-Content-Transfer-Encoding: binary\n\n\0",
            b"Content-Transfer-Encoding: binary\0\n\n",
        ] {
            assert_eq!(read(text, false).expect_err("NUL").code, exit::DATA, "{text:?}");
        }
    }

    #[test]
    fn a_read_error_is_not_the_end_of_the_message() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("gone"))
            }
        }
        assert_eq!(read_message(&mut Broken, 100, false).expect_err("broken").code, exit::IO);
    }
}
