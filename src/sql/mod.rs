//! The only room that holds SQL text or names the driver's errors: connecting, error classes, typed calls.

pub mod ops;
pub mod queue;
pub mod row;

use std::fmt;

/// Why a call failed; each carries one line fit for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The connection broke or cannot be made: I/O, SQLSTATE class 08, 57P01-57P03 (requirement L1).
    Lost(String),
    /// 53300 or the like (requirement O1).
    Overloaded(String),
    /// 40001, 40P01, 55P03, 57014 by timeout: nothing was done, again later.
    Conflict(String),
    /// Refused for any other reason (SQLSTATE in the text).
    Refused(String),
    /// A person must act: a bad URL, no such database or role, a password, sslmode=require, a read-only role.
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

/// What a connection is for: decides timeouts, synchronous_commit and application_name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Dispatcher,
    Worker {
        synchronous_commit: bool,
    },
    /// synchronous_commit on: what was accepted is on disk.
    Admission,
    Tool,
}

/// One open connection, READ COMMITTED, with its prepared statements.
pub struct Db {}

impl Db {
    /// Connects to `[pepsi-postgres] CONFIG`; `postgres:///name` means the socket folder and the OS user.
    pub fn connect(url: &str, program: &str, purpose: Purpose) -> Result<Db, Error> {
        let _ = (url, program, purpose);
        unimplemented!()
    }
    /// Whether the installed schema is this release's; the error says which it is.
    pub fn check_schema(&mut self) -> Result<(), Error> {
        unimplemented!()
    }
}
