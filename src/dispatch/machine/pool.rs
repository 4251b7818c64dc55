//! The workers of one stage and the rows that wait for one (requirements P1-P5): capacity, packing, spawning,
//! recycling, cooldown. What a worker does with an event is `worker`'s table, what becomes of rows is `verdict`'s.
//!
//! Invariants: a worker is started only while there are fewer than PARALLELISM, whatever their state; at most QUEUE_LIMIT
//! ids with each, and no more rows in the stage than both allow, but for rows that must be alone and wait for a worker of
//! their own. Workers from before a reload (C2) may be more, and hold more, than the new values say.

use super::worker::{Deed, Input, Row, State, Worker};
use super::{Action, Claim, Micros, StageSpec, WorkerId};
use std::collections::VecDeque;

/// An average above this makes a new worker worth more than a place behind another message (P2).
const LONG: Micros = 20_000;
/// The cooldown after a worker that did not come up; it doubles with each until one has answered something.
const COOLDOWN: Micros = 1_000_000;
const LONGEST_COOLDOWN: Micros = 30_000_000;
/// A stage whose database is lost or overloaded is not claimed for so long (O1).
const HOLD: Micros = 1_000_000;
/// The newest message counts for one part in this many of the average.
const AVERAGE_OVER: Micros = 8;

#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) spec: StageSpec,
    pub(super) workers: Vec<Worker>,
    pub(super) waiting: VecDeque<Row>,
    pub(super) average: Option<Micros>,
    cool_until: Option<Micros>,
    cooldown: Micros,
    hold_until: Option<Micros>,
    /// Its section is gone; only its last workers are still here.
    removed: bool,
}

/// Where a row goes.
enum Place {
    Worker(usize),
    New,
    Nowhere,
}

impl Stage {
    pub(super) fn new(spec: StageSpec) -> Stage {
        Stage {
            spec,
            workers: Vec::new(),
            waiting: VecDeque::new(),
            average: None,
            cool_until: None,
            cooldown: COOLDOWN,
            hold_until: None,
            removed: false,
        }
    }

    /// The section was read again. A cooldown ends: whoever mended the stage must not wait for it.
    pub(super) fn renewed(self, spec: StageSpec) -> Stage {
        // One that comes again before it was forgotten is as new.
        let hold_until = self.hold_until.filter(|_| !self.removed);
        Stage { spec, removed: false, cool_until: None, cooldown: COOLDOWN, hold_until, ..self }
    }

    pub(super) fn removed(self) -> Stage {
        Stage { removed: true, cool_until: None, ..self }
    }

    /// It was removed, and nothing is left of it.
    pub(super) fn is_over(&self) -> bool {
        self.removed && self.workers.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed
    }

    /// What waits here though the new values leave no room for it, the newest first to go; of a removed stage all that
    /// was not sent.
    pub(super) fn excess(&mut self) -> Vec<Claim> {
        if self.removed {
            return self.withdraw();
        }
        let most = self.spec.parallelism.saturating_mul(self.spec.queue_limit);
        let held: u32 = self.workers.iter().map(Worker::holds).sum();
        let room = self.waiting.len().min(most.saturating_sub(held) as usize);
        self.waiting.split_off(room).into_iter().map(|row| row.claim).collect()
    }

    pub(super) fn live(&self) -> u32 {
        self.workers.len() as u32
    }

    /// All rows that are here, waiting or with a worker.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.workers.iter().flat_map(|worker| worker.sent.iter().chain(&worker.unsent)).chain(&self.waiting)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.workers.iter().all(|worker| worker.holds() == 0)
    }

    /// How many rows may be claimed; `cap` is PARALLELISM, or less under pressure.
    pub(super) fn capacity(&self, cap: u32) -> u32 {
        if self.removed || !self.waiting.is_empty() || self.hold_until.is_some() {
            return 0;
        }
        let cooling = self.cool_until.is_some();
        let usable = |worker: &&Worker| !cooling || worker.state != State::Starting;
        let free: u32 = self.workers.iter().filter(usable).map(|worker| worker.slots(&self.spec)).sum();
        let each = self.spec.queue_limit.min(self.spec.max_messages);
        let fresh = if cooling { 0 } else { cap.saturating_sub(self.live()).saturating_mul(each) };
        let held: u32 = self.workers.iter().map(Worker::holds).sum();
        let most = cap.saturating_mul(self.spec.queue_limit);
        free.saturating_add(fresh).min(most.saturating_sub(held))
    }

    pub(super) fn may_spawn(&self, cap: u32) -> bool {
        !self.removed && self.cool_until.is_none() && self.live() < cap
    }

    /// Messages are known to be short here.
    pub(super) fn is_quick(&self) -> bool {
        self.average.is_some_and(|average| average <= LONG)
    }

    /// Where a row goes: to a worker of its own if it must be alone or messages take long here, else to the fullest
    /// pipeline that has a place, so that the others go cold.
    fn place(&self, row: &Row, cap: u32) -> Place {
        let open = || {
            let numbered = self.workers.iter().enumerate();
            numbered.filter(|(_, worker)| worker.slots(&self.spec) > 0)
        };
        let up = |worker: &Worker| worker.state == State::Up;
        let spawn = self.may_spawn(cap);
        if !row.alone && self.is_quick() {
            // Of equals the oldest, which is the last that `max_by_key` sees when they come in reverse.
            let fullest = open().rev().max_by_key(|(_, worker)| (up(worker), worker.holds()));
            return match fullest {
                Some((index, _)) => Place::Worker(index),
                None if spawn => Place::New,
                None => Place::Nowhere,
            };
        }
        let emptiest = open().min_by_key(|(_, worker)| (worker.holds(), !up(worker)));
        match emptiest {
            Some((index, worker)) if worker.holds() == 0 || !spawn => Place::Worker(index),
            Some(_) | None if spawn => Place::New,
            Some(_) | None => Place::Nowhere,
        }
    }

    /// Gives the waiting rows to workers, new ones where needed, and sends what may be sent. The rows that no worker
    /// will take before the cooldown is over are returned.
    pub(super) fn hand_out(
        &mut self,
        now: Micros,
        cap: u32,
        last_worker: &mut u64,
        actions: &mut Vec<Action>,
    ) -> Vec<Row> {
        while let Some(row) = self.waiting.front() {
            let index = match self.place(row, cap) {
                Place::Worker(index) => index,
                Place::New => {
                    *last_worker += 1;
                    let id = WorkerId(*last_worker);
                    self.workers.push(Worker::new(id, now));
                    assert!(
                        !self.removed && self.live() <= self.spec.parallelism,
                        "more workers than PARALLELISM"
                    );
                    actions.push(self.spawn(id));
                    self.workers.len() - 1
                }
                Place::Nowhere => break,
            };
            self.workers[index].unsent.extend(self.waiting.pop_front());
        }
        for worker in &mut self.workers {
            let rows = worker.send(now);
            if !rows.is_empty() {
                actions.push(Action::Send { worker: worker.id, rows });
            }
            if worker.is_worn(&self.spec) {
                worker.meet(now, &Input::Retire);
            }
            if worker.holds() == 0 && worker.meet(now, &Input::Drained) == Deed::Close {
                actions.push(Action::Close { worker: worker.id });
            }
        }
        if self.cool_until.is_some() && !self.workers.iter().any(Worker::is_open) {
            return self.waiting.drain(..).collect();
        }
        Vec::new()
    }

    fn spawn(&self, worker: WorkerId) -> Action {
        let StageSpec { name, program, queue_limit, .. } = &self.spec;
        let (stage, program) = (name.clone(), program.clone());
        Action::Spawn { worker, stage, program, queue_limit: *queue_limit }
    }

    /// What was not sent to a worker waits for another, ahead of what came later.
    pub(super) fn release(&mut self, index: usize) {
        while let Some(row) = self.workers[index].unsent.pop_back() {
            self.waiting.push_front(row);
        }
    }

    /// A worker did not come up. One that fails while the stage cools is of the same incident: nothing doubles.
    pub(super) fn cool(&mut self, now: Micros) {
        let until = match self.cool_until.filter(|until| now < *until) {
            Some(until) => until.max(now.saturating_add(COOLDOWN)),
            None => {
                let until = now.saturating_add(self.cooldown);
                self.cooldown = (self.cooldown * 2).min(LONGEST_COOLDOWN);
                until
            }
        };
        self.cool_until = Some(until);
    }

    /// Nothing is claimed for a while.
    pub(super) fn hold(&mut self, now: Micros) {
        self.hold_until = Some(now.saturating_add(HOLD));
    }

    /// A worker has answered, so they can come up; the message took `spent`.
    pub(super) fn answered(&mut self, spent: Micros) {
        self.cooldown = COOLDOWN;
        self.average = Some(match self.average {
            None => spent,
            Some(average) => average - average / AVERAGE_OVER + spent / AVERAGE_OVER,
        });
    }

    /// Ends a cooldown or hold that is over; whether there was one.
    pub(super) fn expire(&mut self, now: Micros) -> bool {
        let over = |until: &mut Option<Micros>| until.take_if(|until| now >= *until).is_some();
        over(&mut self.cool_until) | over(&mut self.hold_until)
    }

    pub(super) fn deadline(&self, idle: Micros) -> Option<Micros> {
        let workers = self.workers.iter().filter_map(|worker| worker.deadline(&self.spec, idle));
        workers.chain(self.cool_until).chain(self.hold_until).min()
    }

    /// The workers whose time limits have passed, and which.
    pub(super) fn overstayed(&self, now: Micros, idle: Micros) -> Vec<(WorkerId, Input)> {
        let late = |worker: &Worker| Some((worker.id, worker.overstayed(now, &self.spec, idle)?));
        self.workers.iter().filter_map(late).collect()
    }

    /// More workers than `cap` take ids: the ones to retire, those that do least first, of equals the newest.
    pub(super) fn surplus(&self, cap: u32) -> Vec<WorkerId> {
        let mut open: Vec<&Worker> = self.workers.iter().filter(|worker| worker.is_open()).collect();
        let surplus = open.len().saturating_sub(cap as usize);
        open.sort_by_key(|worker| (worker.state == State::Up, worker.sent.len(), u64::MAX - worker.id.0));
        open.iter().take(surplus).map(|worker| worker.id).collect()
    }

    /// What was not sent is given back.
    pub(super) fn withdraw(&mut self) -> Vec<Claim> {
        let unsent = self.workers.iter_mut().flat_map(|worker| worker.unsent.drain(..));
        unsent.chain(self.waiting.drain(..)).map(|row| row.claim).collect()
    }

    /// Our own rules, checked.
    pub(super) fn audit(&self) {
        let open = self.workers.iter().filter(|worker| worker.is_open());
        assert!(open.count() <= self.spec.parallelism as usize, "more workers than PARALLELISM");
        for worker in &self.workers {
            let is_full = worker.holds() > self.spec.queue_limit;
            assert!(!is_full || !worker.is_open(), "more ids than QUEUE_LIMIT");
            assert!(worker.sent.len() < 2 || !worker.sent.iter().any(|row| row.alone), "a row is not alone");
            assert!(worker.sent.len() < 2 || worker.ghosts.is_empty(), "a row is behind withdrawn ones");
        }
    }
}
