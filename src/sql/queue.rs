//! The dispatcher's statements: lock, LISTEN, claim, fenced writes about claimed rows, sweeps, statistics.
//!
//! Every write about a claimed row tests `status = 'running' AND claims = ` its claim (requirement D4): repeated after a lost
//! reply, or late, it changes nothing.

use super::{Db, Error, Statement, clean, error};
use fallible_iterator::FallibleIterator;
use std::collections::BTreeSet;
use std::time::Duration;

const LOCK: Statement =
    Statement { purpose: "take the dispatcher's lock", text: include_str!("lock_dispatcher.sql") };
const HOLDER: Statement =
    Statement { purpose: "see who holds the dispatcher's lock", text: include_str!("lock_holder.sql") };
const TERMINATE: Statement =
    Statement { purpose: "end the former backend", text: include_str!("terminate.sql") };
const LISTEN: &str = include_str!("listen.sql");
const RECONCILE: Statement =
    Statement { purpose: "reconcile running messages", text: include_str!("reconcile.sql") };
const RAISE_CLAIMS: Statement =
    Statement { purpose: "raise claims that were forgotten", text: include_str!("raise_claims.sql") };
const FIND_RUNNING: Statement =
    Statement { purpose: "look for running messages", text: include_str!("find_running.sql") };
const REQUEUE: Statement = Statement { purpose: "requeue messages", text: include_str!("requeue.sql") };
const PAUSE: Statement = Statement { purpose: "pause a message", text: include_str!("pause_claimed.sql") };
const STRIKE: Statement = Statement { purpose: "strike a message", text: include_str!("strike.sql") };
const CONDEMN: Statement = Statement { purpose: "condemn a message", text: include_str!("condemn.sql") };
const FAIL: Statement = Statement { purpose: "fail a message", text: include_str!("fail_claimed.sql") };
const SWEEP: Statement =
    Statement { purpose: "sweep paused messages", text: include_str!("sweep_paused.sql") };
const FLUSH: Statement = Statement { purpose: "write the statistics", text: include_str!("flush.sql") };
const COLLECT_BODIES: Statement =
    Statement { purpose: "collect bodies", text: include_str!("collect_bodies.sql") };

/// A server that does not answer an empty query for so long is taken for lost: without this bound, a stopped server on a
/// Unix socket would stop us too.
const POLL_TIMEOUT: Duration = Duration::from_secs(10);

/// Strays that are told of at once.
const STRAYS: usize = 1000;

/// A row and the claim it is fenced by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub id: i64,
    pub claim: i64,
}

/// A running row that is not held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    pub stage: String,
    pub held: Held,
    pub strikes: u32,
}

/// Who holds the dispatcher's advisory lock of this database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock {
    Taken(Backend),
    /// Somebody else; None when it went away between the two looks.
    HeldBy(Option<Backend>),
}

/// A server process, told apart from a later one with the same pid by its start (microseconds since 1970).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    pub pid: i32,
    pub started_us: i64,
}

/// One stage's share of a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageCount {
    pub stage: String,
    pub messages: u64,
    pub processing_us: u64,
    pub timeouts: u64,
    pub crashes: u64,
}

/// What a sweep may move of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueRows {
    pub stage: String,
    pub rows: u32,
    /// From which time on to look, microseconds since 1970; None: from the first.
    pub since_us: Option<i64>,
}

/// What a sweep moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The rows that went, by stage.
    pub rows: Vec<(String, i64)>,
    /// Stages of which more are due, and the time of the first that was left.
    pub more: Vec<(String, i64)>,
    /// Until the next row of the other stages is due; None: none waits.
    pub due_in_us: Option<u64>,
}

/// Channels of requirement W1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Workqueue,
    ConfigChanged,
    TelemetryChanged,
}

impl Db {
    /// Tries the advisory lock once, without waiting.
    pub fn lock_dispatcher(&mut self) -> Result<Lock, Error> {
        let rows = self.query(&LOCK, &[])?;
        match rows.first() {
            Some(row) if row.get("is_taken") => Ok(Lock::Taken(backend(row))),
            Some(_) | None => Ok(Lock::HeldBy(self.query(&HOLDER, &[])?.first().map(backend))),
        }
    }

    /// Terminates that backend if it is still the same one.
    pub fn terminate(&mut self, backend: &Backend) -> Result<(), Error> {
        self.query(&TERMINATE, &[&backend.pid, &backend.started_us]).map(drop)
    }

    /// LISTENs on the three channels.
    pub fn listen(&mut self) -> Result<(), Error> {
        let heard = self.client.batch_execute(LISTEN);
        heard.map_err(|cause| error::of_statement("listen", &cause, self.client.is_closed()))
    }

    /// Turns the driver's reactor with an empty query, then takes all notifications that have come.
    pub fn poll_notifications(&mut self) -> Result<Vec<Channel>, Error> {
        // After a timeout the answer may still come, and belong to nothing: whatever failed, the connection is done with.
        let turned = self.client.is_valid(POLL_TIMEOUT);
        turned.map_err(|cause| error::of_statement("poll for notifications", &cause, true))?;
        self.buffered_notifications()
    }

    /// Takes the notifications that earlier statements left in memory; no I/O.
    pub fn buffered_notifications(&mut self) -> Result<Vec<Channel>, Error> {
        // Most wakes find none; then not even the driver's reactor is entered.
        if self.client.notifications().is_empty() {
            return Ok(Vec::new());
        }
        let taken =
            self.client.notifications().iter().map(|one| Ok(channel(one.channel()))).collect::<Vec<_>>();
        let channels = taken.map_err(|cause| error::of_statement("take notifications", &cause, true))?;
        Ok(channels.into_iter().flatten().collect())
    }

    /// Every running row but `held` back to pending, but for those that somebody has locked: they are returned. First every
    /// row that is held has at least the number it is held under, and for that a lock is waited for (D4). Each of the three
    /// statements stands for itself, as nobody else claims.
    pub fn reconcile(&mut self, held: &[Held]) -> Result<Vec<Held>, Error> {
        let (ids, claims) = columns(held);
        self.execute(&RAISE_CLAIMS, &[&ids, &claims])?;
        let found = self.running_but(held, i64::MAX)?;
        let (ids, claims): (Vec<i64>, Vec<i64>) =
            found.iter().map(|row| (row.held.id, row.held.claim)).unzip();
        let freed = self.query(&RECONCILE, &[&ids, &claims])?;
        let freed: BTreeSet<i64> = freed.iter().map(|row| row.get("workqueue_id")).collect();
        Ok(found.into_iter().map(|row| row.held).filter(|row| !freed.contains(&row.id)).collect())
    }

    /// The first thousand running rows but `held`, left as they are.
    pub fn find_strays(&mut self, held: &[Held]) -> Result<Vec<Stray>, Error> {
        let limit = held.len().saturating_add(STRAYS);
        let mut found = self.running_but(held, i64::try_from(limit).unwrap_or(i64::MAX))?;
        found.truncate(STRAYS);
        Ok(found)
    }

    /// Of the first `limit` running rows those that are not `held`.
    fn running_but(&mut self, held: &[Held], limit: i64) -> Result<Vec<Stray>, Error> {
        let held: BTreeSet<(i64, i64)> = held.iter().map(|row| (row.id, row.claim)).collect();
        let found = self.query(&FIND_RUNNING, &[&limit])?;
        let stray = |row: &postgres::Row| Stray {
            stage: row.get("stage"),
            held: Held { id: row.get("workqueue_id"), claim: row.get("claims") },
            strikes: row.get::<_, Option<i32>>("strikes").and_then(|n| n.try_into().ok()).unwrap_or(0),
        };
        let found = found.iter().map(stray);
        Ok(found.filter(|row| !held.contains(&(row.held.id, row.held.claim))).collect())
    }

    /// Back to pending, fenced; how many still were ours.
    pub fn requeue(&mut self, rows: &[Held]) -> Result<u64, Error> {
        let (ids, claims) = columns(rows);
        self.execute(&REQUEUE, &[&ids, &claims])
    }

    /// paused for `pause_us` with state.last_error, fenced.
    pub fn pause_claimed(&mut self, row: Held, pause_us: u64, error: &str) -> Result<bool, Error> {
        let changed =
            self.execute(&PAUSE, &[&row.id, &row.claim, &super::pause(pause_us), &clean::text(error)])?;
        Ok(changed > 0)
    }

    /// paused with strikes, last_error, failure_class and dispatch_error, fenced (E2). `class` is crashed or timed-out.
    pub fn strike(
        &mut self,
        row: Held,
        strikes: u32,
        pause_us: u64,
        class: &str,
        error: &str,
    ) -> Result<bool, Error> {
        let (strikes, pause_us) = (count(strikes), super::pause(pause_us));
        let error = clean::text(error);
        let changed = self.execute(&STRIKE, &[&row.id, &row.claim, &strikes, &pause_us, &class, &error])?;
        Ok(changed > 0)
    }

    /// failed (crashed) or timeout (timed-out), fenced (E2).
    pub fn condemn(&mut self, row: Held, strikes: u32, class: &str, error: &str) -> Result<bool, Error> {
        let (strikes, error) = (count(strikes), clean::text(error));
        Ok(self.execute(&CONDEMN, &[&row.id, &row.claim, &strikes, &class, &error])? > 0)
    }

    /// failed with dispatch_error, fenced (R3).
    pub fn fail_claimed(&mut self, row: Held, error: &str) -> Result<bool, Error> {
        Ok(self.execute(&FAIL, &[&row.id, &row.claim, &clean::text(error)])? > 0)
    }

    /// Due paused rows of these stages to pending (E7, E8).
    pub fn sweep_paused(&mut self, stages: &[DueRows]) -> Result<Swept, Error> {
        let names: Vec<&str> = stages.iter().map(|one| one.stage.as_str()).collect();
        let rooms: Vec<i32> = stages.iter().map(|one| count(one.rows)).collect();
        let since: Vec<Option<i64>> = stages.iter().map(|one| one.since_us).collect();
        let mut swept = Swept::default();
        for row in self.query(&SWEEP, &[&names, &rooms, &since])? {
            let stage = row.get::<_, Option<String>>("stage").unwrap_or_default();
            let number: Option<i64> = row.get("number");
            match (row.get("kind"), number) {
                ("swept", Some(id)) => swept.rows.push((stage, id)),
                ("more", Some(since)) => swept.more.push((stage, since)),
                ("due", due) => swept.due_in_us = unsigned(due),
                (other, _) => return Err(Error::Schema(format!("a sweep brought {other:?}"))),
            }
        }
        Ok(swept)
    }

    /// Adds to stage_stats and dispatch_stats in one transaction; messages_finished grows by the `answered` ids that are gone,
    /// and `unserved` replaces the former figure.
    pub fn flush(
        &mut self,
        stages: &[StageCount],
        executed: u64,
        failed: u64,
        serialization_failures: u64,
        answered: &[i64],
        unserved: u64,
    ) -> Result<(), Error> {
        let names: Vec<&str> = stages.iter().map(|one| one.stage.as_str()).collect();
        let column =
            |pick: fn(&StageCount) -> u64| stages.iter().map(|one| big(pick(one))).collect::<Vec<i64>>();
        let (messages, times) = (column(|one| one.messages), column(|one| one.processing_us));
        let (timeouts, crashes) = (column(|one| one.timeouts), column(|one| one.crashes));
        let totals = [big(executed), big(failed), big(serialization_failures), big(unserved)];
        let [executed, failed, conflicts, unserved] = &totals;
        self.execute(
            &FLUSH,
            &[
                &names, &messages, &times, &timeouts, &crashes, executed, failed, conflicts, &answered,
                unserved,
            ],
        )
        .map(drop)
    }

    /// Deletes at most `limit` bodies that no row references; how many.
    pub fn collect_bodies(&mut self, limit: u32) -> Result<u64, Error> {
        let rows = self.query(&COLLECT_BODIES, &[&count(limit)])?;
        Ok(rows.first().and_then(|row| unsigned(row.get(0))).unwrap_or(0))
    }
}

fn backend(row: &postgres::Row) -> Backend {
    Backend { pid: row.get("pid"), started_us: row.get("started_us") }
}

fn channel(name: &str) -> Option<Channel> {
    match name {
        "workqueue" => Some(Channel::Workqueue),
        "config_changed" => Some(Channel::ConfigChanged),
        "telemetry_changed" => Some(Channel::TelemetryChanged),
        _ => None,
    }
}

fn columns(rows: &[Held]) -> (Vec<i64>, Vec<i64>) {
    rows.iter().map(|row| (row.id, row.claim)).unzip()
}

/// A number of the server's that is not negative.
fn unsigned(value: Option<i64>) -> Option<u64> {
    value.map(|value| u64::try_from(value).unwrap_or(0))
}

fn count(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn big(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
