//! How lines end outside of the database: as they are kept there, or as text files of Unix have them.
//!
//! Invariants: linear time; nothing but line ends changes, and of these a bare CR never.

use super::split;

/// What a line ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// LF: every CRLF becomes one.
    Lf,
    /// As it is.
    Crlf,
}

impl LineEnd {
    /// `lf` or `crlf`, in any case.
    pub fn parse(name: &str) -> Option<LineEnd> {
        match name.to_ascii_lowercase().as_str() {
            "lf" => Some(LineEnd::Lf),
            "crlf" => Some(LineEnd::Crlf),
            _ => None,
        }
    }

    /// A part of a message, piece by piece. No CRLF may cross from one part to the next.
    pub fn pieces(self, part: &[u8]) -> impl Iterator<Item = &[u8]> {
        part.split_inclusive(|byte| *byte == b'\n').flat_map(move |line| match line.strip_suffix(b"\r\n") {
            Some(text) if self == LineEnd::Lf => [text, b"\n"],
            Some(_) | None => [line, b""],
        })
    }

    /// The same in one.
    pub fn convert(self, part: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(part.len());
        self.pieces(part).for_each(|piece| out.extend_from_slice(piece));
        out
    }

    /// Header block and body of a message whose lines end so, as `split` has them: at the first empty line.
    pub fn split(self, text: &[u8]) -> (&[u8], Option<&[u8]>) {
        if self == LineEnd::Crlf {
            return split::split(text);
        }
        let mut at = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if line == b"\n" || line == b"\r\n" {
                return (&text[..at], Some(&text[at + line.len()..]));
            }
            at += line.len();
        }
        (text, None)
    }

    /// The way back: a bare LF is a line end where LF is what ends lines.
    pub fn restore(self, part: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(part.len() + part.len() / 32);
        for line in part.split_inclusive(|byte| *byte == b'\n') {
            match line.strip_suffix(b"\n") {
                Some(text) if self == LineEnd::Lf && !text.ends_with(b"\r") => {
                    out.extend_from_slice(text);
                    out.extend_from_slice(b"\r\n");
                }
                Some(_) | None => out.extend_from_slice(line),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_line_ends_change_and_they_come_back() {
        for (kept, text) in [
            (&b""[..], &b""[..]),
            (b"a\r\nb\r\n", b"a\nb\n"),
            (b"\r\n\r\n", b"\n\n"),
            (b"a\r\r\nb\rc\r", b"a\r\nb\rc\r"),
            (b"a\0\xff\r\nb", b"a\0\xff\nb"),
        ] {
            assert_eq!(LineEnd::Lf.convert(kept), text, "{kept:?}");
            assert_eq!(LineEnd::Crlf.convert(kept), kept);
            assert_eq!(LineEnd::Crlf.restore(kept), kept);
            assert_eq!(LineEnd::Crlf.restore(text), text);
        }
        assert_eq!(LineEnd::Lf.restore(b"a\nb\r\n\n\rc\n"), b"a\r\nb\r\n\r\n\rc\r\n");
        assert_eq!(LineEnd::Lf.restore(b"no end"), b"no end");
        assert_eq!(LineEnd::Lf.convert(b"bare\nLF stays\n"), b"bare\nLF stays\n");
    }

    #[test]
    fn the_first_empty_line_counts() {
        let lf = |text: &'static [u8]| LineEnd::Lf.split(text);
        assert_eq!(lf(b"A: b\nC: d\n\nx\n\ny"), (&b"A: b\nC: d\n"[..], Some(&b"x\n\ny"[..])));
        assert_eq!(lf(b"A: b\r\n\r\nx"), (&b"A: b\r\n"[..], Some(&b"x"[..])));
        assert_eq!(lf(b"\n"), (&b""[..], Some(&b""[..])));
        assert_eq!(lf(b"A: b\n"), (&b"A: b\n"[..], None));
        assert_eq!(lf(b""), (&b""[..], None));
        assert_eq!(LineEnd::Crlf.split(b"A: b\n\n\r\nx"), (&b"A: b\n\n"[..], Some(&b"x"[..])));
    }

    // Req: S4
    #[test]
    fn two_names_are_known() {
        assert_eq!(LineEnd::parse("LF"), Some(LineEnd::Lf));
        assert_eq!(LineEnd::parse("crlf"), Some(LineEnd::Crlf));
        for other in ["", "cr", "lf ", "\n"] {
            assert_eq!(LineEnd::parse(other), None, "{other:?}");
        }
    }
}
