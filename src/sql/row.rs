//! The worker's statements: one SELECT loads a row, one statement commits its outcome, fenced by the claim (D4).

use super::{Db, Error};
use serde_json::Value;

/// How much of the message a stage needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    Metadata,
    Headers,
    Full,
}

/// A row of pepsi.workqueue as a worker holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub id: i64,
    pub claim: i64,
    /// As the enum says: pending, running, paused, failed, timeout.
    pub status: String,
    pub stage: String,
    /// An object.
    pub state: Value,
    pub mail_from: String,
    pub rcpt_to: Vec<String>,
    pub header_from: Option<String>,
    pub subject: Option<String>,
    /// Since 1970.
    pub received_at_us: i64,
    /// The database's clock at the load, since 1970.
    pub now_us: i64,
    /// Octets of the whole message, known at every Load.
    pub size: i64,
    /// Some when Load is Headers or Full.
    pub headers: Option<Vec<u8>>,
    /// When Load is Full: None when the message has no empty line.
    pub body: Option<Vec<u8>>,
}

/// Columns a stage rewrote; None: untouched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    pub mail_from: Option<String>,
    pub rcpt_to: Option<Vec<String>>,
    pub header_from: Option<Option<String>>,
    pub subject: Option<Option<String>>,
    pub headers: Option<Vec<u8>>,
    /// A fresh workqueue_body row for this message alone (copy on write).
    pub body: Option<Option<Vec<u8>>>,
}

impl Content {
    pub fn is_empty(&self) -> bool {
        *self == Content::default()
    }
}

/// Where the row goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// pending at that stage; strikes, temporary_failures and last_error are removed (E2).
    Advance { stage: String },
    /// paused at its stage.
    Pause { pause_us: u64 },
    /// failed.
    Fail,
    /// The row is deleted (its body with it when it was the last).
    Finish,
}

impl Db {
    /// Loads one row whatever its status; None when there is none.
    pub fn load(&mut self, id: i64, load: Load) -> Result<Option<Row>, Error> {
        let _ = (id, load);
        unimplemented!()
    }
    /// Commits one outcome in one statement: content, `state || merge`, and the move. False when the row is no longer
    /// running under that claim; then nothing was changed.
    pub fn commit(
        &mut self,
        id: i64,
        claim: i64,
        content: &Content,
        merge: &Value,
        to: &Move,
    ) -> Result<bool, Error> {
        let _ = (id, claim, content, merge, to);
        unimplemented!()
    }
}
