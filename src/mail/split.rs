//! Header block and body, so that `headers || CRLF || body` is the message byte for byte (requirement A8).

/// Splits at the first empty line: a CRLF at the start or right behind an LF. The body is None when there is no
/// empty line; then the message is the header block alone, and `join` adds nothing.
pub fn split(raw: &[u8]) -> (&[u8], Option<&[u8]>) {
    let _ = raw;
    unimplemented!()
}

/// The message again.
pub fn join(headers: &[u8], body: Option<&[u8]>) -> Vec<u8> {
    let _ = (headers, body);
    unimplemented!()
}
