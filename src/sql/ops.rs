//! Statements of ingress and of the operator's programs: admission, listing, schema, configuration overlay.

use super::{Db, Error};
use serde_json::Value;

/// A message to admit.
pub struct Admission<'a> {
    pub mail_from: &'a str,
    pub rcpt_to: &'a [String],
    pub headers: &'a [u8],
    pub body: Option<&'a [u8]>,
    pub state: Value,
    pub stage: &'a str,
}

/// One row as `pepsi-queue` shows it.
#[derive(Clone, Debug)]
pub struct Listed {
    pub id: i64,
    pub stage: String,
    pub status: String,
    pub claims: i64,
    pub mail_from: String,
    pub rcpt_to: Vec<String>,
    pub header_from: Option<String>,
    pub subject: Option<String>,
    pub sender_key: String,
    pub size: i64,
    /// RFC 3339, UTC.
    pub received_at: String,
    /// Seconds since received_at by the database's clock.
    pub age_seconds: i64,
    /// Seconds until due (negative: overdue); None unless paused with a time.
    pub due_seconds: Option<i64>,
    pub state: Value,
}

/// What `list` selects; None and empty: all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub stage: Option<String>,
    pub status: Option<String>,
    pub sender: Option<String>,
    pub recipient: Option<String>,
    pub limit: u32,
}

impl Db {
    /// Stores one message durably through workqueue_add; returns its id. Does not notify.
    pub fn admit(&mut self, message: &Admission<'_>) -> Result<i64, Error> {
        let _ = message;
        unimplemented!()
    }
    /// One empty notification on `workqueue`.
    pub fn notify_workqueue(&mut self) -> Result<(), Error> {
        unimplemented!()
    }
    /// Rows by id, oldest first.
    pub fn list(&mut self, filter: &Filter) -> Result<Vec<Listed>, Error> {
        let _ = filter;
        unimplemented!()
    }
    /// One row.
    pub fn show(&mut self, id: i64) -> Result<Option<Listed>, Error> {
        let _ = id;
        unimplemented!()
    }
    /// The rows of config_override with scope `global`: section, option, value.
    pub fn overrides(&mut self) -> Result<Vec<(String, String, String)>, Error> {
        unimplemented!()
    }
}
