//! Error classes: what the driver and SQLSTATE say, as the few kinds the rest of Pepsi tells apart (requirements L1, O1).
//!
//! Each text names what was being done, the server's message and the SQLSTATE. DETAIL is left out: it quotes row values,
//! and with them mail addresses. The log sink escapes control bytes.

use postgres::error::{DbError, Severity};
use std::error::Error as _;
use std::fmt;
use std::io;

/// Why a call failed; each carries one line fit for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The connection broke or cannot be made: I/O, SQLSTATE class 08, 57P01-57P03, or the server ended the session
    /// (requirement L1). What was asked may have been committed all the same.
    Lost(String),
    /// 53300, or no connection in time (requirement O1).
    Overloaded(String),
    /// 40001, 40P01, 55P03, 57014 by timeout: nothing was done, again later.
    Conflict(String),
    /// Refused for any other reason (SQLSTATE in the text).
    Refused(String),
    /// A person must act: a bad URL, no such database or role, a password, sslmode=require, a read-only role, a missing
    /// right.
    Setup(String),
    /// The schema is missing, older, newer or of other files; exit code 78.
    Schema(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Error::Lost(text)
        | Error::Overloaded(text)
        | Error::Conflict(text)
        | Error::Refused(text)
        | Error::Setup(text)
        | Error::Schema(text)) = self;
        f.write_str(text)
    }
}

/// Classifies the failure of a statement that was to `purpose`, on a connection that is now closed or not.
pub(super) fn of_statement(purpose: &str, error: &postgres::Error, is_closed: bool) -> Error {
    match error.as_db_error() {
        Some(db) => of_sqlstate(format!("cannot {purpose}: {}", server_text(db)), db),
        None => {
            let text = format!("cannot {purpose}: {}", chain(error));
            if is_closed || is_transport(error) { Error::Lost(text) } else { Error::Refused(text) }
        }
    }
}

fn of_sqlstate(text: String, error: &DbError) -> Error {
    let has_ended_session = matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
        || error.severity() == "FATAL";
    match error.code().code() {
        "53300" => Error::Overloaded(text),
        "57P01" | "57P02" | "57P03" => Error::Lost(text),
        code if code.starts_with("08") => Error::Lost(text),
        _ if has_ended_session => Error::Lost(text),
        "40001" | "40P01" | "55P03" | "57014" => Error::Conflict(text),
        // A server or role that became read-only, and rights that were never given.
        "25006" | "42501" => Error::Setup(text),
        // A table, column, function, type or schema that is not there.
        "42P01" | "42703" | "42883" | "42704" | "3F000" => {
            Error::Schema(format!("{text}; `pepsi-setup schema` installs it"))
        }
        _ => Error::Refused(text),
    }
}

/// Whether running the statement once more may succeed at once: serialization failure or deadlock.
pub(super) fn is_transient(error: &postgres::Error) -> bool {
    error.code().is_some_and(|code| matches!(code.code(), "40001" | "40P01"))
}

/// The server's message and SQLSTATE, with the constraint where one is named.
pub(super) fn server_text(error: &DbError) -> String {
    let constraint = error.constraint().map(|name| format!(", constraint {name}")).unwrap_or_default();
    format!("{} (SQLSTATE {}{constraint})", error.message(), error.code().code())
}

/// The error and its causes in one line; the driver's own text leaves the cause out.
pub(super) fn chain(error: &postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// The I/O error below, if that is what it was.
pub(super) fn io_cause(error: &postgres::Error) -> Option<&io::Error> {
    error.source().and_then(|cause| cause.downcast_ref::<io::Error>())
}

/// InvalidInput is the driver refusing to encode what we gave it: the connection is unharmed.
fn is_transport(error: &postgres::Error) -> bool {
    error.is_closed() || io_cause(error).is_some_and(|cause| cause.kind() != io::ErrorKind::InvalidInput)
}
