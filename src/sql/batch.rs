//! The worker's statements for several rows at once (requirement B1): one UPDATE or DELETE for each shape of
//! outcome, each row fenced by its own claim (D4). Each statement is a transaction of its own; a row is in one of them.

use super::fan::Fan;
use super::queue::Held;
use super::row::{Content, Move};
use super::{Db, Error, Statement, clean};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const ADVANCE: Statement = Statement { purpose: "advance messages", text: include_str!("advance_batch.sql") };
const READDRESS: Statement =
    Statement { purpose: "advance messages with a new envelope", text: include_str!("readdress_batch.sql") };
const PAUSE: Statement = Statement { purpose: "defer messages", text: include_str!("pause_batch.sql") };
const FAIL: Statement = Statement { purpose: "write failures", text: include_str!("fail_batch.sql") };
const FINISH: Statement = Statement { purpose: "finish messages", text: include_str!("finish_batch.sql") };

/// What is written about one row.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub row: Held,
    pub content: &'a Content,
    pub merge: &'a Value,
    pub to: &'a Move,
    pub fan: &'a Fan,
}

/// The statements that write several rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Advance,
    Readdress,
    Pause,
    Fail,
    Finish,
}

/// Which of them writes it; None: it needs one of its own.
fn shape(write: &Write<'_>) -> Option<Shape> {
    if !write.fan.is_empty() {
        return None;
    }
    let Content { mail_from: _, rcpt_to: _, header_from, subject, headers, body, stage: _ } = write.content;
    let is_envelope = header_from.is_none() && subject.is_none() && headers.is_none() && body.is_none();
    match write.to {
        Move::Finish => Some(Shape::Finish),
        Move::Advance { .. } if write.content.is_empty() => Some(Shape::Advance),
        Move::Advance { .. } if is_envelope => Some(Shape::Readdress),
        Move::Pause { .. } if write.content.is_empty() => Some(Shape::Pause),
        Move::Fail if write.content.is_empty() => Some(Shape::Fail),
        Move::Advance { .. } | Move::Pause { .. } | Move::Fail | Move::Stay => None,
    }
}

impl Db {
    /// Commits outcomes of different rows, as `commit` does one; for each whether the row was still ours, or why the statement
    /// that it was in did nothing.
    pub fn commit_batch(&mut self, writes: &[Write<'_>]) -> Vec<Result<bool, Error>> {
        let mut results: Vec<Result<bool, Error>> = vec![Ok(false); writes.len()];
        for shape_now in [Shape::Advance, Shape::Readdress, Shape::Pause, Shape::Fail, Shape::Finish] {
            let places: Vec<usize> =
                (0..writes.len()).filter(|at| shape(&writes[*at]) == Some(shape_now)).collect();
            if places.is_empty() {
                continue;
            }
            let some: Vec<Write<'_>> = places.iter().map(|at| writes[*at]).collect();
            let written = self.write_shape(shape_now, &some);
            for at in places {
                results[at] = match &written {
                    Ok(ids) => Ok(ids.contains(&writes[at].row.id)),
                    Err(error) => Err(error.clone()),
                };
            }
        }
        for (at, write) in writes.iter().enumerate().filter(|(_, write)| shape(write).is_none()) {
            results[at] = self.commit_one(write);
        }
        results
    }

    /// One outcome, whatever its shape. What leaves rows beside it rewrites recipients and state alone.
    pub fn commit_one(&mut self, write: &Write<'_>) -> Result<bool, Error> {
        let Write { row, content, merge, to, fan } = *write;
        if fan.is_empty() {
            return self.commit(row.id, row.claim, content, merge, to);
        }
        self.conclude(row, content.rcpt_to.as_deref(), merge, to, fan)
    }

    fn write_shape(&mut self, shape: Shape, writes: &[Write<'_>]) -> Result<BTreeSet<i64>, Error> {
        let ids: Vec<i64> = writes.iter().map(|write| write.row.id).collect();
        let claims: Vec<i64> = writes.iter().map(|write| write.row.claim).collect();
        let merges: Vec<Value> = writes.iter().map(|write| clean::json(write.merge).into_owned()).collect();
        let stages: Vec<Option<&str>> = writes.iter().map(|write| stage(write.to)).collect();
        let rows = match shape {
            Shape::Advance => self.query(&ADVANCE, &[&ids, &claims, &stages, &merges])?,
            Shape::Readdress => {
                let senders: Vec<Option<&str>> =
                    writes.iter().map(|write| write.content.mail_from.as_deref()).collect();
                let recipients: Vec<Option<Value>> =
                    writes.iter().map(|write| write.content.rcpt_to.as_ref().map(|all| json!(all))).collect();
                self.query(&READDRESS, &[&ids, &claims, &stages, &merges, &senders, &recipients])?
            }
            Shape::Pause => {
                let pauses: Vec<i64> = writes.iter().map(|write| pause_us(write.to)).collect();
                self.query(&PAUSE, &[&ids, &claims, &pauses, &merges])?
            }
            Shape::Fail => self.query(&FAIL, &[&ids, &claims, &merges])?,
            Shape::Finish => self.query(&FINISH, &[&ids, &claims])?,
        };
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

fn stage(to: &Move) -> Option<&str> {
    match to {
        Move::Advance { stage } => Some(stage),
        Move::Pause { .. } | Move::Fail | Move::Finish | Move::Stay => None,
    }
}

fn pause_us(to: &Move) -> i64 {
    match to {
        Move::Pause { pause_us } => super::pause(*pause_us),
        Move::Advance { .. } | Move::Fail | Move::Finish | Move::Stay => 0,
    }
}
