//! The dispatcher's statements: lock, LISTEN, claim, fenced writes about claimed rows, sweeps, statistics.

use super::{Db, Error};

/// A row and the claim it is fenced by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub id: i64,
    pub claim: i64,
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

/// What a claim asks for one stage: at most `capacity` rows whose id is at least `floor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    pub stage: String,
    pub capacity: u32,
    pub floor: i64,
}

/// A row that is running for us now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub stage: String,
    pub held: Held,
    pub sender: String,
    pub strikes: u32,
}

/// A claim's rows, each stage's oldest first, and the microseconds until the earliest paused row is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    pub rows: Vec<Claimed>,
    pub due_in_us: Option<u64>,
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
        unimplemented!()
    }
    /// Terminates that backend if it is still the same one.
    pub fn terminate(&mut self, backend: &Backend) -> Result<(), Error> {
        let _ = backend;
        unimplemented!()
    }
    /// LISTENs on the three channels.
    pub fn listen(&mut self) -> Result<(), Error> {
        unimplemented!()
    }
    /// Turns the driver's reactor with an empty query, then takes all notifications that have come.
    pub fn poll_notifications(&mut self) -> Result<Vec<Channel>, Error> {
        unimplemented!()
    }
    /// Takes the notifications that earlier statements left in memory; no I/O.
    pub fn buffered_notifications(&mut self) -> Result<Vec<Channel>, Error> {
        unimplemented!()
    }
    /// Every running row but `held` back to pending; how many.
    pub fn reconcile(&mut self, held: &[Held]) -> Result<u64, Error> {
        let _ = held;
        unimplemented!()
    }
    /// The one pending-to-running write, for all stages at once, oldest first (W3, W4).
    pub fn claim(&mut self, wants: &[Want], skip_locked: bool) -> Result<Claims, Error> {
        let _ = (wants, skip_locked);
        unimplemented!()
    }
    /// Back to pending, fenced; how many still were ours.
    pub fn requeue(&mut self, rows: &[Held]) -> Result<u64, Error> {
        let _ = rows;
        unimplemented!()
    }
    /// paused for `pause_us` with state.last_error, fenced.
    pub fn pause_claimed(&mut self, row: Held, pause_us: u64, error: &str) -> Result<bool, Error> {
        let _ = (row, pause_us, error);
        unimplemented!()
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
        let _ = (row, strikes, pause_us, class, error);
        unimplemented!()
    }
    /// failed (crashed) or timeout (timed-out), fenced (E2).
    pub fn condemn(&mut self, row: Held, strikes: u32, class: &str, error: &str) -> Result<bool, Error> {
        let _ = (row, strikes, class, error);
        unimplemented!()
    }
    /// failed with dispatch_error, fenced (R3).
    pub fn fail_claimed(&mut self, row: Held, error: &str) -> Result<bool, Error> {
        let _ = (row, error);
        unimplemented!()
    }
    /// At most `limit` due paused rows to pending: how many, and the microseconds until the next is due.
    pub fn sweep_paused(&mut self, limit: u32) -> Result<(u64, Option<u64>), Error> {
        let _ = limit;
        unimplemented!()
    }
    /// Adds to stage_stats and dispatch_stats in one transaction; messages_finished grows by the `answered` ids that are gone.
    pub fn flush(
        &mut self,
        stages: &[StageCount],
        executed: u64,
        failed: u64,
        serialization_failures: u64,
        answered: &[i64],
    ) -> Result<(), Error> {
        let _ = (stages, executed, failed, serialization_failures, answered);
        unimplemented!()
    }
    /// Deletes at most `limit` bodies that no row references; how many.
    pub fn collect_bodies(&mut self, limit: u32) -> Result<u64, Error> {
        let _ = limit;
        unimplemented!()
    }
}
