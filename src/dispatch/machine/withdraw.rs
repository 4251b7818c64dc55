//! Withdrawal (requirement P8): ids behind a head that is stuck are taken from their worker, so that others can do them.
//!
//! The order makes it safe. The worker's processes are stopped, the stop is awaited, its output is drained: all that by the
//! shell, which then says Halted. If the head is still unanswered the worker has begun nothing behind it, as it answers an
//! id before it begins the next. Only then the siblings go back to pending, under their claims, and only once that is known
//! to be written the worker goes on: what it finds behind the head then has a claim that is gone, and it leaves it alone.
//!
//! A row is written back in one statement that is tried once. If that fails the siblings are the worker's as before. If
//! its reply is lost they are too, and it matters little whether they are pending by now, since nobody but we claim them;
//! but the worker waits until that statement can have no effect any more.
//!
//! Invariants: one withdrawal at a time; a halted worker is sent nothing; each halt is followed by a Continue or a Kill
//! within a bound; the time that a worker stood still is not its head's. Answers to withdrawn ids, `ghosts` of the worker,
//! mean nothing, and it takes no other ids before it has given them.

use super::jobs::Kind;
use super::journal::Cause;
use super::pool::Stage;
use super::worker::{Row, State, Worker};
use super::{Action, Claim, Job, Machine, Micros, Severity, WorkerId, fair};

/// A head is stuck when it has run for so long, and for so many times the stage's average.
const STUCK: Micros = 1_000_000;
const STUCK_TIMES: Micros = 10;
/// A worker that does not stop within this goes on, and so does one whose ids cannot be written about for so long.
const HALT_LIMIT: Micros = 1_000_000;
/// The same worker is not halted again sooner.
const AGAIN: Micros = 10_000_000;
/// The server gives a statement of ours 10 s: after this, one whose reply was lost is done or never will be.
const LOST_LIMIT: Micros = 12_000_000;

#[derive(Clone, Debug)]
pub(super) struct Withdrawal {
    worker: WorkerId,
    /// The head that is stuck.
    head: Claim,
    /// When the worker was told to stop.
    since: Micros,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    Stopping,
    /// Stopped and drained.
    Stopped,
    /// These are being written back.
    Writing(Vec<Row>),
    /// They may or may not be written back; settled by a new lock, or by time.
    Lost {
        until: Micros,
    },
}

impl Withdrawal {
    /// What is neither with the worker nor known to be written back.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        match &self.phase {
            Phase::Writing(rows) => rows.iter(),
            Phase::Stopping | Phase::Stopped | Phase::Lost { .. } => [].iter(),
        }
    }
}

impl Worker {
    /// From when on its head counts as stuck, with that limit.
    fn stuck_from(&self, limit: Micros) -> Option<Micros> {
        match self.state {
            State::Up | State::Retiring if !self.sent.is_empty() => Some(self.turned.saturating_add(limit)),
            State::Up | State::Retiring | State::Starting => None,
            State::Closing | State::Mute | State::Dying | State::Broken => None,
        }
    }

    fn is_killed(&self) -> bool {
        match self.state {
            State::Dying | State::Broken => true,
            State::Starting | State::Up | State::Retiring | State::Closing | State::Mute => false,
        }
    }
}

impl Stage {
    /// None while nothing has been answered here: what takes long is not known.
    fn stuck_limit(&self) -> Option<Micros> {
        self.average.map(|average| STUCK.max(average.saturating_mul(STUCK_TIMES)))
    }

    /// Whether rows can hope for another worker than this: a new one, or one that gets on.
    fn has_other(&self, than: WorkerId, cap: u32) -> bool {
        let gets_on = |worker: &Worker| worker.id != than && worker.is_open() && !worker.stuck;
        self.may_spawn(cap) || self.workers.iter().any(gets_on)
    }

    /// Notes which heads are stuck. Rows that were not sent to such a worker need not wait for it.
    fn mark_stuck(&mut self, now: Micros, cap: u32) {
        let limit = self.stuck_limit();
        for worker in &mut self.workers {
            let from = limit.and_then(|limit| worker.stuck_from(limit));
            worker.stuck = from.is_some_and(|from| now >= from);
        }
        for index in 0..self.workers.len() {
            let worker = &self.workers[index];
            if worker.stuck && !worker.unsent.is_empty() && self.has_other(worker.id, cap) {
                self.release(index);
            }
        }
    }

    /// When a head will count as stuck behind which a row waits unsent.
    fn next_release(&self, cap: u32) -> Option<Micros> {
        let limit = self.stuck_limit()?;
        let waits = |worker: &&Worker| !worker.stuck && !worker.unsent.is_empty();
        let waiting = self.workers.iter().filter(waits).filter(|worker| self.has_other(worker.id, cap));
        waiting.filter_map(|worker| worker.stuck_from(limit)).min()
    }

    /// The worker whose siblings are to be withdrawn first, and when.
    fn candidate(&self, cap: u32) -> Option<(Micros, WorkerId)> {
        let limit = self.stuck_limit()?;
        let due = |worker: &Worker| {
            let fits = worker.claims && worker.sent.len() > 1 && self.has_other(worker.id, cap);
            let from = worker.stuck_from(limit).filter(|_| fits)?;
            Some((from.max(worker.again), worker.id))
        };
        self.workers.iter().filter_map(due).min()
    }
}

impl Machine {
    /// At a turn, before time limits are judged.
    pub(super) fn end_withdrawal(&mut self) {
        if self.withdrawal_is_over() {
            self.go_on();
        }
    }

    /// At a turn, after them.
    pub(super) fn begin_withdrawal(&mut self) {
        for (index, stage) in self.stages.iter_mut().enumerate() {
            stage.mark_stuck(self.now, self.pressure.cap(index));
        }
        if let Some((_, id)) = self.next_withdrawal().filter(|(at, _)| *at <= self.now) {
            self.halt(id);
        }
    }

    fn next_withdrawal(&self) -> Option<(Micros, WorkerId)> {
        let may = self.withdrawal.is_none() && self.stop.is_none();
        if !may || !self.jobs.is_up() || self.jobs.is_busy() || !self.upkeep.is_reconciled() {
            return None;
        }
        let stages = self.stages.iter().enumerate();
        stages.filter_map(|(index, stage)| stage.candidate(self.pressure.cap(index))).min()
    }

    pub(super) fn withdrawal_deadline(&self) -> Option<Micros> {
        let stages = self.stages.iter().enumerate().filter(|_| self.stop.is_none());
        let release = stages.filter_map(|(index, stage)| stage.next_release(self.pressure.cap(index))).min();
        release.into_iter().chain(self.halt_deadline()).min()
    }

    fn halt_deadline(&self) -> Option<Micros> {
        let Some(Withdrawal { since, phase, .. }) = &self.withdrawal else {
            return self.next_withdrawal().map(|(at, _)| at);
        };
        if self.withdrawal_is_over() {
            return Some(self.now);
        }
        match phase {
            Phase::Stopping | Phase::Stopped => Some(since.saturating_add(HALT_LIMIT)),
            Phase::Writing(_) => None,
            Phase::Lost { until } => Some(*until),
        }
    }

    /// From when the write is wanted.
    pub(super) fn withdrawal_wish(&self) -> Option<(Kind, Micros)> {
        match self.withdrawal.as_ref()?.phase {
            Phase::Stopped => Some((Kind::Withdraw, self.now)),
            Phase::Stopping | Phase::Writing(_) | Phase::Lost { .. } => None,
        }
    }

    /// Whether the worker is to go on, or is beyond it.
    fn withdrawal_is_over(&self) -> bool {
        let Some(Withdrawal { worker, head, since, phase }) = &self.withdrawal else { return false };
        let worker = self.find(*worker).filter(|worker| !worker.is_killed());
        let is_up = self.jobs.is_up();
        match phase {
            Phase::Stopping | Phase::Stopped => {
                let is_stuck = |worker: &Worker| {
                    worker.stuck_from(0).is_some() && worker.sent.front().map(|row| row.claim) == Some(*head)
                };
                let goes_on = worker.is_some_and(is_stuck) && is_up;
                !goes_on || self.now >= since.saturating_add(HALT_LIMIT)
            }
            Phase::Writing(_) => false,
            Phase::Lost { until } => worker.is_none() || is_up || self.now >= *until,
        }
    }

    fn halt(&mut self, id: WorkerId) {
        let Some(worker) = self.find_mut(id) else { return };
        worker.halted = true;
        let head = worker.sent.front().map(|row| row.claim).expect("a stuck worker has a head");
        self.withdrawal = Some(Withdrawal { worker: id, head, since: self.now, phase: Phase::Stopping });
        self.actions.push(Action::Halt { worker: id });
    }

    /// The worker has stopped, and all that it wrote before was heard.
    pub(super) fn halted(&mut self, id: WorkerId) {
        if let Some(Withdrawal { phase, worker, .. }) = &mut self.withdrawal
            && *worker == id
            && matches!(phase, Phase::Stopping)
        {
            *phase = Phase::Stopped;
            let now = self.now;
            if let Some(worker) = self.find_mut(id) {
                worker.still = Some(now);
            }
        }
    }

    /// The siblings leave the worker.
    pub(super) fn issue_withdrawal(&mut self) -> Option<Job> {
        let id = self.withdrawal.as_ref()?.worker;
        let worker = self.find_mut(id)?;
        let rows: Vec<Row> = worker.sent.drain(1..).collect();
        let claims: Vec<Claim> = rows.iter().map(|row| row.claim).collect();
        worker.ghosts.extend(&claims);
        if let Some(withdrawal) = &mut self.withdrawal {
            withdrawal.phase = Phase::Writing(rows);
        }
        Some(Job::Requeue { rows: claims })
    }

    fn take_written(&mut self) -> Vec<Row> {
        let Some(Withdrawal { phase, .. }) = &mut self.withdrawal else { return Vec::new() };
        match std::mem::replace(phase, Phase::Stopped) {
            Phase::Writing(rows) => rows,
            Phase::Stopping | Phase::Stopped | Phase::Lost { .. } => Vec::new(),
        }
    }

    /// They are pending again.
    pub(super) fn withdrawn(&mut self) {
        let rows = self.take_written();
        for row in &rows {
            self.claims.fair.settle(self.now, row.claim.key(), fair::End::Unrun);
            self.claims.touch(row.claim.id);
        }
        if let Some(Withdrawal { worker, head, .. }) = self.withdrawal {
            let stage = self.locate(worker).map(|(stage, _)| stage);
            let text = format!("{} messages no longer wait behind message {}", rows.len(), head.id);
            self.log_often(Severity::Info, stage, Cause::Withdraw, text);
        }
        self.go_on();
    }

    /// They are not, or after a lost reply may not be.
    pub(super) fn not_withdrawn(&mut self, lost: bool) {
        let rows = self.take_written();
        let id = self.withdrawal.as_ref().map(|withdrawal| withdrawal.worker);
        let worker = id.and_then(|id| self.find_mut(id)).filter(|worker| !worker.is_killed());
        let left = match worker {
            Some(worker) => {
                let ghosts = std::mem::take(&mut worker.ghosts);
                let (back, left): (Vec<Row>, Vec<Row>) =
                    rows.into_iter().partition(|row| ghosts.contains(&row.claim));
                worker.sent.extend(back);
                left
            }
            None => rows,
        };
        for row in left {
            self.requeue(row.claim);
        }
        if lost && let Some(withdrawal) = &mut self.withdrawal {
            withdrawal.phase = Phase::Lost { until: self.now.saturating_add(LOST_LIMIT) };
        } else {
            self.go_on();
        }
    }

    /// The end of a withdrawal. One that was killed is dying whether it is stopped or not.
    fn go_on(&mut self) {
        let Some(Withdrawal { worker: id, .. }) = self.withdrawal.take() else { return };
        let now = self.now;
        let Some(worker) = self.find_mut(id) else { return };
        worker.halted = false;
        worker.again = now.saturating_add(AGAIN);
        if let Some(since) = worker.still.take() {
            worker.turned += now - worker.turned.max(since);
        }
        if !worker.is_killed() {
            self.actions.push(Action::Continue { worker: id });
        }
    }

    fn find(&self, id: WorkerId) -> Option<&Worker> {
        let (stage, index) = self.locate(id)?;
        Some(&self.stages[stage].workers[index])
    }

    fn find_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        let (stage, index) = self.locate(id)?;
        Some(&mut self.stages[stage].workers[index])
    }
}
