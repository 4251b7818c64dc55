//! When to claim and what to ask for (requirements W2-W4): wakes, the heartbeat, and a floor on the ids of each stage.
//!
//! The floor spares a claim the dead index entries of the rows that went before: no pending row of the stage that the
//! machine has been told of has a smaller id. It is sound because whatever can make an older row pending lowers it:
//! - a claim that is oldest first took every row between the old floor and its last one, so the next may start behind
//!   that; one that brought less than it asked took all there were, so the next may start behind all ids seen so far;
//! - a row that leaves a worker, whether answered or not, may be pending anywhere, and siblings that it left have
//!   larger ids: it lowers all floors to its id. The write that puts it back does so again once it is done;
//! - rows that others made pending (notification, sweep, reconcile, a new connection) drop all floors, and so does
//!   the first claim after POLL_INTERVAL, for notifications that were lost.
//!
//! What lowers a floor while a claim is under way holds against what that claim's reply would raise.

use super::chance::{Backoff, Chance};
use super::{Demand, Job, Micros};

/// The delays between claims that are not done.
const RETRY: Micros = 500_000;
const LONGEST_RETRY: Micros = 30_000_000;

/// What one claim asked of one stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) stage: usize,
    pub(super) capacity: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Claims {
    poll_interval: Micros,
    wanted: bool,
    /// The last claim without floors; POLL_INTERVAL counts from there, so that no wake puts the heartbeat off.
    last_full: Micros,
    not_before: Micros,
    skip_locked: bool,
    asked: Vec<Asked>,
    asked_skipping: bool,
    floors: Vec<i64>,
    /// The lowest that floors were lowered to since the claim under way was issued.
    sunk: i64,
    /// The largest id ever claimed.
    seen: i64,
    backoff: Backoff,
}

impl Claims {
    pub(super) fn new(poll_interval: Micros, stages: usize) -> Claims {
        Claims {
            poll_interval,
            wanted: false,
            last_full: 0,
            not_before: 0,
            skip_locked: false,
            asked: Vec::new(),
            asked_skipping: false,
            floors: vec![0; stages],
            sunk: i64::MAX,
            seen: 0,
            backoff: Backoff::new(RETRY, LONGEST_RETRY),
        }
    }

    /// Something may be claimed now that could not before: a wake.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// Others made rows pending.
    pub(super) fn expose(&mut self) {
        self.lower(0);
        self.want();
    }

    /// Row `id` may be pending at any stage, or what came of it.
    pub(super) fn lower(&mut self, id: i64) {
        self.sunk = self.sunk.min(id);
        for floor in &mut self.floors {
            *floor = (*floor).min(id);
        }
    }

    /// From when a claim is wanted: a wake's, or the heartbeat's.
    pub(super) fn wish(&self) -> Micros {
        let at = if self.wanted { 0 } else { self.last_full.saturating_add(self.poll_interval) };
        at.max(self.not_before)
    }

    /// The claim for `asked`, whose names are `names`; nothing of the sort may be under way.
    pub(super) fn issue(&mut self, now: Micros, asked: Vec<Asked>, names: impl Fn(usize) -> String) -> Job {
        if now >= self.last_full.saturating_add(self.poll_interval) {
            self.lower(0);
        }
        if self.floors.iter().all(|floor| *floor == 0) {
            self.last_full = now;
        }
        self.wanted = false;
        self.sunk = i64::MAX;
        self.asked_skipping = std::mem::take(&mut self.skip_locked);
        let demand = |one: &Asked| Demand {
            stage: names(one.stage),
            capacity: one.capacity,
            floor: self.floors[one.stage],
        };
        let demand = asked.iter().map(demand).collect();
        self.asked = asked;
        Job::Claim { demand, skip_locked: self.asked_skipping }
    }

    /// The claim brought these, as (stage, id).
    pub(super) fn done(&mut self, rows: &[(usize, i64)]) {
        self.backoff.reset();
        self.seen = rows.iter().map(|(_, id)| *id).fold(self.seen, i64::max);
        for Asked { stage, capacity } in std::mem::take(&mut self.asked) {
            // A row that was locked may have been passed over: nothing is known of what lies below.
            if self.asked_skipping {
                continue;
            }
            let of_stage = || rows.iter().filter(|(of, _)| *of == stage).map(|(_, id)| *id);
            let took_all = of_stage().count() < capacity as usize;
            let behind = if took_all {
                self.seen.checked_add(1)
            } else {
                of_stage().max().and_then(|id| id.checked_add(1))
            };
            let floor = behind.unwrap_or(0).max(self.floors[stage]);
            self.floors[stage] = floor.min(self.sunk);
        }
    }

    /// Nothing was claimed. A row may be locked by others, so once it is tried around such rows; then later.
    pub(super) fn refused(&mut self, now: Micros, conflict: bool, chance: &mut Chance) {
        self.asked.clear();
        self.wanted = true;
        if conflict && !self.asked_skipping {
            self.skip_locked = true;
        } else {
            self.not_before = now.saturating_add(self.backoff.next(chance));
        }
    }

    /// What was asked may have been claimed; the reconcile after the reconnect frees it.
    pub(super) fn lost(&mut self) {
        self.asked.clear();
    }

    /// A new connection: notifications may have been missed.
    pub(super) fn connected(&mut self) {
        self.not_before = 0;
        self.skip_locked = false;
        self.expose();
    }
}
