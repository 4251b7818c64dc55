//! The worker's statements: one SELECT loads a row, one statement commits its outcome, fenced by the claim (D4).
//!
//! A commit is one statement, and so one transaction: content, state and move become visible together or not at all. It
//! tests `status = 'running' AND claims = ` the claim; when that moved on, nothing is changed.

use super::{Db, Error, Statement, clean};
use serde_json::Value;

const LOAD: Statement = Statement { purpose: "load messages", text: include_str!("load.sql") };
const ADVANCE: Statement = Statement { purpose: "advance a message", text: include_str!("advance.sql") };
const PAUSE: Statement = Statement { purpose: "defer a message", text: include_str!("pause.sql") };
const FAIL: Statement = Statement { purpose: "write a failure", text: include_str!("fail.sql") };
const FINISH: Statement = Statement { purpose: "finish a message", text: include_str!("finish.sql") };
const REWRITE: Statement = Statement { purpose: "rewrite a message", text: include_str!("rewrite.sql") };

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
    /// An object; null when the stored one is beyond what can be read (nested deeper than 128, numbers beyond a double).
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
    /// What is laid over stages' options for its correspondents: an array of scope, section, option and value; None where
    /// nobody has anything of that kind.
    pub settings: Option<Value>,
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
    /// The stage that the row has come to in the same pass, and where it then is paused, fails or stays. On the way there what
    /// was recorded of failures is removed.
    pub stage: Option<String>,
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
    /// It stays running, at the stage that the content names.
    Stay,
}

impl Db {
    /// Loads one row whatever its status; None when there is none.
    pub fn load(&mut self, id: i64, load: Load) -> Result<Option<Row>, Error> {
        Ok(self.load_some(&[id], load)?.pop())
    }

    /// Loads rows whatever their status, without those that are not there; in any order.
    pub fn load_some(&mut self, ids: &[i64], load: Load) -> Result<Vec<Row>, Error> {
        let rows = self.query(&LOAD, &[&ids, &(load >= Load::Headers), &(load == Load::Full)])?;
        Ok(rows.iter().map(read).collect())
    }

    /// Commits one outcome in one statement: content, `state || merge`, and the move. False when the row is no longer
    /// running under that claim; then nothing was changed. Of a row that is finished nothing else is written.
    pub fn commit(
        &mut self,
        id: i64,
        claim: i64,
        content: &Content,
        merge: &Value,
        to: &Move,
    ) -> Result<bool, Error> {
        let merge = clean::json(merge);
        let changed = match to {
            Move::Finish => self.execute(&FINISH, &[&id, &claim])?,
            Move::Advance { stage } if content.is_empty() => {
                self.execute(&ADVANCE, &[&id, &claim, stage, &*merge])?
            }
            Move::Pause { pause_us } if content.is_empty() => {
                self.execute(&PAUSE, &[&id, &claim, &super::pause(*pause_us), &*merge])?
            }
            Move::Fail if content.is_empty() => self.execute(&FAIL, &[&id, &claim, &*merge])?,
            Move::Advance { stage } => {
                self.rewrite(id, claim, content, &merge, ("pending", Some(stage), None))?
            }
            Move::Pause { pause_us } => {
                let pause_us = Some(super::pause(*pause_us));
                self.rewrite(id, claim, content, &merge, ("paused", None, pause_us))?
            }
            Move::Fail => self.rewrite(id, claim, content, &merge, ("failed", None, None))?,
            Move::Stay => self.rewrite(id, claim, content, &merge, ("running", None, None))?,
        };
        Ok(changed > 0)
    }

    /// `to` is the status, the stage if it moves, and the pause if it is paused.
    fn rewrite(
        &mut self,
        id: i64,
        claim: i64,
        content: &Content,
        merge: &Value,
        to: (&str, Option<&str>, Option<i64>),
    ) -> Result<u64, Error> {
        let Content { mail_from, rcpt_to, header_from, subject, headers, body, stage: at } = content;
        let (status, stage, pause_us) = to;
        let stage = stage.or(at.as_deref());
        self.execute(
            &REWRITE,
            &[
                &id,
                &claim,
                &status,
                &stage,
                &pause_us,
                &merge,
                mail_from,
                rcpt_to,
                &header_from.is_some(),
                &text(header_from),
                &subject.is_some(),
                &text(subject),
                headers,
                &body.is_some(),
                &body.as_ref().and_then(Option::as_deref),
            ],
        )
    }
}

/// Text out of a header, which may hold anything.
fn text(value: &Option<Option<String>>) -> Option<std::borrow::Cow<'_, str>> {
    value.as_ref().and_then(Option::as_deref).map(clean::text)
}

fn read(row: &postgres::Row) -> Row {
    Row {
        id: row.get("workqueue_id"),
        claim: row.get("claims"),
        status: row.get("status"),
        stage: row.get("stage"),
        // Nested deeper, or a larger number, than is read here: as null, which a stored state never is.
        state: row.try_get("state").unwrap_or(Value::Null),
        mail_from: row.get("mail_from"),
        rcpt_to: row.get("rcpt_to"),
        header_from: row.get("header_from"),
        subject: row.get("subject"),
        received_at_us: row.get("received_at_us"),
        now_us: row.get("now_us"),
        size: row.get("size"),
        headers: row.get("headers"),
        body: row.get("body"),
        // A text that cannot be read is no setting, as jsonb holds no number here.
        settings: row.try_get("settings").unwrap_or(None),
    }
}
