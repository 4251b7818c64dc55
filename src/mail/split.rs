//! Header block and body, so that `headers || CRLF || body` is the message byte for byte (requirement A8).
//!
//! Invariant: `join` of what `split` gives is the message again, for any bytes. Nothing is changed or judged here.

/// The line end of an empty line.
const CRLF: &[u8] = b"\r\n";

/// Splits at the first empty line: a CRLF at the start or right behind an LF. The body is None when there is no
/// empty line; then the message is the header block alone, and `join` adds nothing.
pub fn split(raw: &[u8]) -> (&[u8], Option<&[u8]>) {
    if let Some(body) = raw.strip_prefix(CRLF) {
        return (&[], Some(body));
    }
    match raw.windows(3).position(|window| window == b"\n\r\n") {
        Some(at) => (&raw[..at + 1], Some(&raw[at + 3..])),
        None => (raw, None),
    }
}

/// The message again. The stages write its parts one by one; tests put them together.
#[cfg(test)]
pub fn join(headers: &[u8], body: Option<&[u8]>) -> Vec<u8> {
    match body {
        Some(body) => [headers, CRLF, body].concat(),
        None => headers.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What must hold of any message, with the place of the split found by another way.
    fn check(raw: &[u8]) {
        let (headers, body) = split(raw);
        assert_eq!(join(headers, body), raw, "{raw:?}");
        let line_starts = (0..=raw.len()).filter(|at| *at == 0 || raw[at - 1] == b'\n');
        let empty = line_starts.into_iter().find(|at| raw[*at..].starts_with(b"\r\n"));
        assert_eq!(body.map(|_| headers.len()), empty, "{raw:?}");
        assert_eq!(split(headers), (headers, None), "a header block has no empty line: {raw:?}");
    }

    // Req: A8
    #[test]
    fn every_short_message_comes_together_again() {
        fn grow(raw: &mut Vec<u8>, left: usize, seen: &mut usize) {
            check(raw);
            *seen += 1;
            if left > 0 {
                for byte in *b"a\r\n:" {
                    raw.push(byte);
                    grow(raw, left - 1, seen);
                    raw.pop();
                }
            }
        }
        let mut seen = 0;
        grow(&mut Vec::new(), 7, &mut seen);
        assert_eq!(seen, 21_845);
    }

    // Req: A8
    #[test]
    fn generated_messages_come_together_again() {
        for seed in 1..=2_000u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut below = |bound: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) % bound
            };
            let length = below(200);
            let mut raw = Vec::new();
            for _ in 0..length {
                match below(8) {
                    0 | 1 => raw.extend_from_slice(b"\r\n"),
                    2 => raw.push(b'\n'),
                    3 => raw.push(b'\r'),
                    4 => raw.extend_from_slice(b"Name: value"),
                    5 => raw.push(0),
                    6 | 7 => raw.push(u8::try_from(below(256)).unwrap()),
                    other => unreachable!("{other}"),
                }
            }
            check(&raw);
        }
    }

    // Req: A8
    #[test]
    fn the_first_empty_line_counts() {
        assert_eq!(split(b""), (&b""[..], None));
        assert_eq!(split(b"\r\n"), (&b""[..], Some(&b""[..])));
        assert_eq!(split(b"\r\nbody"), (&b""[..], Some(&b"body"[..])));
        assert_eq!(split(b"A: b\r\n"), (&b"A: b\r\n"[..], None));
        assert_eq!(split(b"A: b\r\n\r\n"), (&b"A: b\r\n"[..], Some(&b""[..])));
        assert_eq!(split(b"A: b\r\n\r\nx\r\n\r\ny"), (&b"A: b\r\n"[..], Some(&b"x\r\n\r\ny"[..])));
        assert_eq!(split(b"A: b\n\r\nx"), (&b"A: b\n"[..], Some(&b"x"[..])));
        assert_eq!(split(b"A: b\r\r\n\nx"), (&b"A: b\r\r\n\nx"[..], None));
    }
}
