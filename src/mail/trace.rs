//! Fields that Pepsi itself writes: Received (RFC 5321 section 4.4), Date (RFC 5322 section 3.3), Message-ID.

/// `Mon, 30 Nov 2026 18:05:39 +0000` from seconds since 1970 (UTC).
pub fn date(unix_seconds: i64) -> String {
    let _ = unix_seconds;
    unimplemented!()
}

/// A folded `Received:` field with CRLF for a message handed in locally.
pub fn received_local(user: &str, uid: u32, host: &str, id: &str, unix_seconds: i64) -> String {
    let _ = (user, uid, host, id, unix_seconds);
    unimplemented!()
}
