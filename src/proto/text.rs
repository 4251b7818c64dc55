//! Text for logs and for the database: control bytes escaped, lengths bounded, NUL removed.

/// `text` with control characters, bidirectional overrides and line separators escaped, at most `max` bytes of it
/// (cut at a character, with `…` when something was cut).
pub fn escape(text: &str, max: usize) -> String {
    let _ = (text, max);
    unimplemented!()
}

/// As `escape`, for bytes that may not be UTF-8.
pub fn escape_bytes(bytes: &[u8], max: usize) -> String {
    let _ = (bytes, max);
    unimplemented!()
}

/// A log value: as it is when it is one plain word, else in double quotes with `"` and `\` escaped.
pub fn log_value(text: &str) -> String {
    let _ = text;
    unimplemented!()
}

/// Text fit for a text or jsonb column: bytes that are not UTF-8 replaced, NUL removed, at most `max` bytes.
pub fn for_database(bytes: &[u8], max: usize) -> String {
    let _ = (bytes, max);
    unimplemented!()
}
