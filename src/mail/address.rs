//! Addresses: the RFC 5321 mailbox of an envelope, and the mailboxes of a header field (RFC 5322, groups and comments too).

/// An envelope address that was checked, split at its last `@` outside quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub local: String,
    /// As written, without trailing dot; empty for a bare local name.
    pub domain: String,
}

/// Why an address is refused, as a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(pub String);

/// Checks an envelope address: dot-string or quoted local part (at most 64 octets), domain or address literal (at
/// most 255), UTF-8 allowed (RFC 6531), no control characters, no NUL, no line end; surrounding `<>` allowed. A bare
/// local name is allowed.
pub fn parse(text: &str) -> Result<Address, AddressError> {
    let _ = text;
    unimplemented!()
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let _ = f;
        unimplemented!()
    }
}

/// The addr-specs of a header field's value such as To: display names, comments, groups, routes and folds dealt with.
/// Each entry is an address or why that piece is none.
pub fn list(value: &str) -> Vec<Result<Address, AddressError>> {
    let _ = value;
    unimplemented!()
}
