//! The end of each round of events: timers are judged, then the most urgent job that is due is issued.
//!
//! `wishes` is the one list of jobs in the order of their urgency, each with the time from which it is wanted: the
//! first that is due is issued, and the earliest is the deadline, so that the two cannot disagree.

use super::jobs::Kind;
use super::pool::Stage;
use super::sweep::{Load, Room};
use super::{Machine, Micros, Severity};

/// The most rows that one claim asks of a stage: it bounds a statement, and the time of handing out what it brought.
pub(super) const MOST_CLAIMED: u32 = 256;

type Wish = Option<(Kind, Micros)>;

impl Machine {
    pub(super) fn turn(&mut self) {
        self.end_withdrawal();
        self.judge_workers();
        self.expire();
        self.turn_stop();
        self.turn_reload();
        self.begin_withdrawal();
        // What the timers freed is given out before capacities are counted.
        self.hand_out();
        if self.ended || self.jobs.is_busy() {
            return;
        }
        let due = self.wishes().into_iter().flatten().find(|(_, at)| *at <= self.now);
        if let Some((kind, _)) = due {
            if kind == Kind::Flush {
                self.flush_issued();
            }
            self.issue(kind);
        }
        if cfg!(debug_assertions) {
            self.stages.iter().for_each(super::pool::Stage::audit);
        }
    }

    fn judge_workers(&mut self) {
        let idle = self.settings.worker_idle_timeout;
        let late: Vec<_> = self.stages.iter().flat_map(|stage| stage.overstayed(self.now, idle)).collect();
        for (worker, input) in late {
            self.worker(worker, input);
        }
    }

    /// Cooldowns, holds and cuts that are over are wakes.
    fn expire(&mut self) {
        for stage in 0..self.stages.len() {
            if self.stages[stage].expire(self.now) {
                self.claims.want();
            }
        }
        for stage in self.pressure.expire(self.now) {
            self.log(Severity::Info, Some(stage), "all workers are allowed here again".to_owned());
            self.claims.want();
        }
    }

    /// Rows that wait go to workers; those that would have to outwait a cooldown go back (P5).
    pub(super) fn hand_out(&mut self) {
        if self.stop.is_some() {
            return;
        }
        let mut back = Vec::new();
        for (index, stage) in self.stages.iter_mut().enumerate() {
            let cap = self.pressure.cap(index);
            back.extend(stage.hand_out(self.now, cap, &mut self.last_worker, &mut self.actions));
        }
        for row in back {
            self.requeue(row.claim);
        }
    }

    /// What a claim may ask for now, of each stage.
    pub(super) fn capacities(&self) -> Vec<u32> {
        let all = self.stages.iter().enumerate();
        all.map(|(index, stage)| stage.capacity(self.pressure.cap(index)).min(MOST_CLAIMED)).collect()
    }

    /// How many due rows may be swept now, of each stage.
    pub(super) fn rooms(&self) -> Vec<Room> {
        let room = |(index, stage): (usize, &Stage)| {
            let workers = self.pressure.cap(index);
            let places = workers.saturating_mul(stage.spec.queue_limit);
            let held = u32::try_from(stage.rows().count()).unwrap_or(u32::MAX);
            let load = Load { workers, places, held, is_quick: stage.is_quick() };
            self.sweeps.room(self.now, &stage.spec.name, load)
        };
        self.stages.iter().enumerate().filter(|(_, stage)| !stage.is_removed()).map(room).collect()
    }

    fn wishes(&self) -> [Wish; 8] {
        if let Some(stop) = &self.stop {
            return if stop.database { self.last_wishes() } else { [None; 8] };
        }
        if !self.jobs.is_up() {
            return [self.jobs.wish(), None, None, None, None, None, None, None];
        }
        let may_claim = self.upkeep.is_reconciled() && !self.writes.is_full();
        let claim = may_claim.then(|| self.claims.wish(&self.capacities()));
        let idle = self.writes.is_empty() && self.stages.iter().all(super::pool::Stage::is_idle);
        let claim = claim.map(|at| (Kind::Claim, at.max(self.reload.claims_from())));
        // This runs twice a turn, and room matters only where due rows wait for it.
        let rooms = if self.sweeps.has_backlog() { self.rooms() } else { Vec::new() };
        let sweep = self.sweeps.wish(self.now, &rooms).map(|at| (Kind::Sweep, at));
        // Many sweeps in a row let the claims in between.
        let (first, second) = if self.sweeps.since_claim { (claim, sweep) } else { (sweep, claim) };
        [
            // A worker stands still meanwhile.
            self.withdrawal_wish(),
            self.writes.wish().map(|at| (Kind::Write, at)),
            self.upkeep.reconcile_wish().map(|at| (Kind::Reconcile, at)),
            self.reload.wish().map(|at| (Kind::Reread, at)),
            first,
            second,
            self.stats.wish(idle).map(|at| (Kind::Flush, at)),
            self.upkeep.bodies_wish().map(|at| (Kind::Bodies, at)),
        ]
    }

    /// While the dispatcher ends: what is owed, and nothing new.
    fn last_wishes(&self) -> [Wish; 8] {
        if !self.jobs.is_established() {
            return [None; 8];
        }
        if !self.jobs.is_up() {
            return [self.jobs.wish(), None, None, None, None, None, None, None];
        }
        [
            self.writes.wish().map(|at| (Kind::Write, at)),
            self.last_reconcile().map(|at| (Kind::Reconcile, at)),
            self.last_flush().map(|at| (Kind::Flush, at)),
            None,
            None,
            None,
            None,
            None,
        ]
    }

    /// When to step `Turn` next if nothing happens before.
    pub fn deadline(&self) -> Option<Micros> {
        if self.ended {
            return None;
        }
        let idle = self.settings.worker_idle_timeout;
        let stages = self.stages.iter().filter_map(|stage| stage.deadline(idle));
        let timers = stages
            .chain(self.pressure.deadline())
            .chain(self.stop_deadline())
            .chain(self.reload_deadline())
            .chain(self.withdrawal_deadline())
            .min();
        let wishes = if self.jobs.is_busy() { [None; 8] } else { self.wishes() };
        let jobs = wishes.into_iter().flatten().map(|(_, at)| at).min();
        // Nothing is ever due before now, and what is due never (MAX_RUNTIME = forever) is no deadline.
        let first = timers.into_iter().chain(jobs).min().filter(|at| *at < Micros::MAX);
        first.map(|at| at.max(self.now))
    }
}
