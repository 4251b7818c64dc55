//! Rows that a message leaves beside it (requirements A5, A6): made by one stored function together with the message's own move.

use super::queue::Held;
use super::row::Move;
use super::{Db, Error, Statement, clean};
use serde_json::{Value, json};
use std::time::Duration;

const CONCLUDE: Statement =
    Statement { purpose: "split or copy a message", text: include_str!("conclude.sql") };

/// What a message leaves beside it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fan {
    pub groups: Vec<FanGroup>,
    pub sides: Vec<SideMessage>,
}

impl Fan {
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.sides.is_empty()
    }
}

/// A row with the headers and the body of the message that it comes from, as they lie in the database.
#[derive(Clone, Debug, PartialEq)]
pub struct FanGroup {
    pub rcpt_to: Vec<String>,
    /// None: as the message's.
    pub mail_from: Option<String>,
    /// None: the stage that the message is at.
    pub stage: Option<String>,
    /// An object, laid over a copy of the state. It brings the `dsn` that belongs to `rcpt_to`.
    pub state: Value,
    pub status: GroupStatus,
    /// A row in the queue with this token keeps this one from coming into being.
    pub token: Option<String>,
    /// A message of its own, such as a notification: it arrives now. Else it has arrived when the message did.
    pub is_fresh: bool,
}

/// What the new row waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupStatus {
    Pending,
    Retry(Duration),
    Failed,
}

impl FanGroup {
    /// These recipients as a row that waits at the message's own stage.
    pub fn new(rcpt_to: Vec<String>) -> FanGroup {
        FanGroup {
            rcpt_to,
            mail_from: None,
            stage: None,
            state: json!({}),
            status: GroupStatus::Pending,
            token: None,
            is_fresh: false,
        }
    }

    fn spec(&self) -> Value {
        let FanGroup { rcpt_to, mail_from, stage, state, status, token, is_fresh } = self;
        let (status, pause_us) = match status {
            GroupStatus::Pending => ("pending", None),
            GroupStatus::Retry(pause) => ("paused", Some(pause_us(*pause))),
            GroupStatus::Failed => ("failed", None),
        };
        json!({
            "rcpt_to": rcpt_to, "mail_from": mail_from, "stage": stage, "state": state, "status": status,
            "pause_us": pause_us, "token": token, "fresh": is_fresh,
        })
    }
}

/// A message of its own that a stage sends.
#[derive(Clone, Debug, PartialEq)]
pub struct SideMessage {
    /// Empty: the null sender.
    pub mail_from: String,
    pub rcpt_to: Vec<String>,
    pub headers: Vec<u8>,
    /// None: without an empty line.
    pub body: Option<Vec<u8>>,
    /// An object.
    pub state: Value,
    pub stage: String,
}

fn pause_us(pause: Duration) -> i64 {
    super::pause(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX))
}

impl Db {
    /// The message's own move, its recipients where they are others, `merge` laid over its state, and what it leaves beside
    /// it: all or nothing. False when the row is no longer running under that claim.
    pub fn conclude(
        &mut self,
        row: Held,
        keep: Option<&[String]>,
        merge: &Value,
        to: &Move,
        fan: &Fan,
    ) -> Result<bool, Error> {
        let (status, stage, pause) = match to {
            Move::Advance { stage } => ("pending", Some(stage), None),
            Move::Pause { pause_us } => ("paused", None, Some(super::pause(*pause_us))),
            Move::Fail => ("failed", None, None),
            Move::Finish => ("finished", None, None),
            Move::Stay => ("running", None, None),
        };
        let groups: Value = fan.groups.iter().map(FanGroup::spec).collect();
        let side = |one: &SideMessage| {
            let SideMessage { mail_from, rcpt_to, state, stage, headers: _, body: _ } = one;
            json!({ "mail_from": mail_from, "rcpt_to": rcpt_to, "state": state, "stage": stage })
        };
        let sides: Value = fan.sides.iter().map(side).collect();
        let headers: Vec<&[u8]> = fan.sides.iter().map(|one| one.headers.as_slice()).collect();
        let bodies: Vec<Option<&[u8]>> = fan.sides.iter().map(|one| one.body.as_deref()).collect();
        let rows = self.query(
            &CONCLUDE,
            &[
                &row.id,
                &row.claim,
                &status,
                &stage,
                &pause,
                &*clean::json(merge),
                &keep,
                &*clean::json(&groups),
                &*clean::json(&sides),
                &headers,
                &bodies,
            ],
        )?;
        Ok(rows.first().is_some_and(|row| row.get("is_ours")))
    }
}
