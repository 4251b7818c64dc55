//! The orderly end (requirement D3): workers finish or are killed, the rows they leave go back, statistics are flushed.
//!
//! Bounds: the workers have `GRACE`, the database has `WRITE_WAIT` after the last of them, and everything has `LIMIT`.
//! What is not written by then stays running, and the next start frees it (D2).

use super::worker::Input;
use super::{Action, Announcement, Machine, Micros, Severity, WorkerId};

/// Workers finish what they hold within this, or are killed.
const GRACE: Micros = 3_000_000;
/// The database is tried for so long after the last worker is gone.
const WRITE_WAIT: Micros = 4_000_000;
const LIMIT: Micros = 5_500_000;

#[derive(Clone, Debug)]
pub(super) struct Stop {
    code: u8,
    since: Micros,
    killed: bool,
    /// Whether there is a database to write to.
    pub(super) database: bool,
    /// Since when there is no worker.
    alone: Option<Micros>,
    flushed: bool,
}

impl Machine {
    /// A signal: the first begins the end, the second cuts the workers' time short.
    pub(super) fn terminate(&mut self) {
        if self.stop.is_some() {
            self.kill_all();
            return;
        }
        self.log(Severity::Info, None, "stopping".to_owned());
        self.begin(0, true);
    }

    /// Nothing more can be written: the workers are stopped, and the end is `code`.
    pub(super) fn give_up(&mut self, code: u8) {
        match &mut self.stop {
            Some(stop) => stop.database = false,
            None => self.begin(code, false),
        }
        self.kill_all();
    }

    pub(super) fn begin(&mut self, code: u8, database: bool) {
        self.actions.push(Action::Announce(Announcement::Stopping));
        let since = self.now;
        self.stop = Some(Stop { code, since, killed: false, database, alone: None, flushed: false });
        let back: Vec<_> = self.stages.iter_mut().flat_map(super::pool::Stage::withdraw).collect();
        for row in back {
            self.requeue(row);
        }
        for worker in self.workers() {
            self.worker(worker, Input::Stop);
        }
        self.writes.hurry();
        self.jobs.hurry(self.now);
    }

    fn kill_all(&mut self) {
        if let Some(stop) = &mut self.stop {
            stop.killed = true;
        }
        for worker in self.workers() {
            self.worker(worker, Input::Kill);
        }
    }

    fn is_alone(&self) -> bool {
        self.stages.iter().all(|stage| stage.workers.is_empty())
    }

    pub(super) fn workers(&self) -> Vec<WorkerId> {
        self.stages.iter().flat_map(|stage| &stage.workers).map(|worker| worker.id).collect()
    }

    /// Whether all that could be written is written.
    fn is_settled(&self, stop: &Stop) -> bool {
        let written = self.writes.is_empty()
            && self.upkeep.reconcile_wish().is_none()
            && (stop.flushed || !self.stats.is_dirty());
        let nothing = !stop.database || !self.jobs.is_established();
        stop.alone.is_some() && !self.jobs.is_busy() && (nothing || written)
    }

    /// At a turn: kills the slow ones, and ends when nothing is left to do or time is up.
    pub(super) fn turn_stop(&mut self) {
        let Some(stop) = &mut self.stop else { return };
        if !stop.killed && self.now >= stop.since.saturating_add(GRACE) {
            self.kill_all();
        }
        let gone = self.is_alone();
        let Some(stop) = &mut self.stop else { return };
        if gone && stop.alone.is_none() {
            stop.alone = Some(self.now);
        }
        let stop = stop.clone();
        if self.now >= stop.limit() || self.is_settled(&stop) {
            self.end(stop.code);
        }
    }

    fn end(&mut self, code: u8) {
        let left = self.held().len();
        if left > 0 {
            let text =
                format!("{left} messages stay running for want of the database; the next start frees them");
            self.log(Severity::Warning, None, text);
        }
        self.actions.push(Action::Exit { code });
        self.ended = true;
    }

    /// A reconcile that was wanted for any reason is made once no worker is left, when it frees all there are.
    pub(super) fn last_reconcile(&self) -> Option<Micros> {
        self.stop.as_ref()?.alone?;
        self.upkeep.reconcile_wish().map(|_| self.now)
    }

    /// The last flush is due when nothing else is left to write; it is tried once.
    pub(super) fn last_flush(&self) -> Option<Micros> {
        let stop = self.stop.as_ref()?;
        let due = stop.alone.is_some() && !stop.flushed && self.writes.is_empty() && self.stats.is_dirty();
        due.then_some(self.now)
    }

    pub(super) fn flush_issued(&mut self) {
        if let Some(stop) = &mut self.stop {
            stop.flushed = true;
        }
    }

    pub(super) fn stop_deadline(&self) -> Option<Micros> {
        let stop = self.stop.as_ref()?;
        if self.is_settled(stop) || (stop.alone.is_none() && self.is_alone()) {
            return Some(self.now);
        }
        let grace = stop.since.saturating_add(GRACE);
        Some(if stop.killed { stop.limit() } else { grace.min(stop.limit()) })
    }
}

impl Stop {
    fn limit(&self) -> Micros {
        let last = self.alone.map_or(Micros::MAX, |since| since.saturating_add(WRITE_WAIT));
        self.since.saturating_add(LIMIT).min(last)
    }
}
