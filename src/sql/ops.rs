//! Statements of ingress and of the operator's programs: admission, listing, configuration overlay.

use super::{Db, Error, Statement, clean};
use serde_json::Value;

const ADMIT: Statement = Statement { purpose: "store the message", text: include_str!("admit.sql") };
const NOTIFY: Statement =
    Statement { purpose: "wake the dispatcher", text: include_str!("notify_workqueue.sql") };
const LIST: Statement = Statement { purpose: "list messages", text: include_str!("list.sql") };
const OVERRIDES: Statement =
    Statement { purpose: "read config_override", text: include_str!("overrides.sql") };

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
        let Admission { mail_from, rcpt_to, headers, body, state, stage } = message;
        let rows = self.query(&ADMIT, &[mail_from, rcpt_to, headers, body, &*clean::json(state), stage])?;
        match rows.first() {
            Some(row) => Ok(row.get(0)),
            None => Err(Error::Refused("cannot store the message: the server returned no id".into())),
        }
    }

    /// One empty notification on `workqueue`.
    pub fn notify_workqueue(&mut self) -> Result<(), Error> {
        self.query(&NOTIFY, &[]).map(drop)
    }

    /// Rows by id, oldest first. An unknown status is an error.
    pub fn list(&mut self, filter: &Filter) -> Result<Vec<Listed>, Error> {
        let Filter { stage, status, sender, recipient, limit } = filter;
        let no_id: Option<i64> = None;
        let rows = self.query(&LIST, &[stage, status, sender, recipient, &no_id, &i64::from(*limit)])?;
        Ok(rows.iter().map(listed).collect())
    }

    /// One row.
    pub fn show(&mut self, id: i64) -> Result<Option<Listed>, Error> {
        let any: Option<&str> = None;
        let rows = self.query(&LIST, &[&any, &any, &any, &any, &Some(id), &1i64])?;
        Ok(rows.first().map(listed))
    }

    /// The rows of config_override with scope `global`: section, option, value.
    pub fn overrides(&mut self) -> Result<Vec<(String, String, String)>, Error> {
        let rows = self.query(&OVERRIDES, &[])?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect())
    }
}

fn listed(row: &postgres::Row) -> Listed {
    Listed {
        id: row.get("workqueue_id"),
        stage: row.get("stage"),
        status: row.get("status"),
        claims: row.get("claims"),
        mail_from: row.get("mail_from"),
        rcpt_to: row.get("rcpt_to"),
        header_from: row.get("header_from"),
        subject: row.get("subject"),
        sender_key: row.get("sender_key"),
        size: row.get("size"),
        received_at: row.get("received_at"),
        age_seconds: row.get("age_seconds"),
        due_seconds: row.get("due_seconds"),
        // Null when it is nested deeper than can be read: a list must show the other rows all the same.
        state: row.try_get("state").unwrap_or(Value::Null),
    }
}
