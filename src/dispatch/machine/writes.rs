//! Writes about rows that left a worker without a word from it, kept until the database is known to have them.
//!
//! A row has at most one write for each claim. Each is fenced, so one that met a lost connection is simply repeated.
//! One that was refused is repeated alone and later: it holds up neither the others nor the claims, as none waits for a
//! row that somebody has locked, and it is never dropped. `BOUND` keeps a database that refuses them all from filling the memory: see `is_full`.

use super::chance::Chance;
use super::{Blame, Claim, Job, Micros};
use std::collections::VecDeque;

/// Rows in one Requeue.
const BATCH: usize = 500;
/// With this many unresolved nothing more is claimed, so no more come than are in the pipelines then.
const BOUND: usize = 1000;
/// The delay before the first repetition; it doubles with each, up to the longest.
const RETRY: Micros = 500_000;
const LONGEST_RETRY: Micros = 30_000_000;

/// What is to become of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Requeue,
    Pause { pause: Micros, error: String },
    Strike { strikes: u32, pause: Micros, blame: Blame, error: String },
    Condemn { strikes: u32, blame: Blame, error: String },
    Fail { error: String },
}

impl What {
    fn job(&self, row: Claim) -> Job {
        match self.clone() {
            What::Requeue => Job::Requeue { rows: vec![row] },
            What::Pause { pause, error } => Job::Pause { row, pause, error },
            What::Strike { strikes, pause, blame, error } => {
                Job::Strike { row, strikes, pause, blame, error }
            }
            What::Condemn { strikes, blame, error } => Job::Condemn { row, strikes, blame, error },
            What::Fail { error } => Job::Fail { row, error },
        }
    }
}

#[derive(Clone, Debug)]
struct Write {
    row: Claim,
    what: What,
    not_before: Micros,
    refusals: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Writes {
    queue: VecDeque<Write>,
    under_way: Vec<Write>,
}

impl Writes {
    pub(super) fn new() -> Writes {
        Writes { queue: VecDeque::new(), under_way: Vec::new() }
    }

    pub(super) fn push(&mut self, row: Claim, what: What) {
        self.queue.push_back(Write { row, what, not_before: 0, refusals: 0 });
    }

    /// No more may be claimed: too much is unresolved.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= BOUND
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.under_way.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows of all unresolved writes.
    pub(super) fn rows(&self) -> impl Iterator<Item = Claim> {
        self.under_way.iter().chain(&self.queue).map(|write| write.row)
    }

    /// From when a write is wanted.
    pub(super) fn wish(&self) -> Option<Micros> {
        self.queue.iter().map(|write| write.not_before).min()
    }

    /// The first write that is due, with as many more as fit into the same job.
    pub(super) fn issue(&mut self, now: Micros) -> Option<Job> {
        assert!(self.under_way.is_empty(), "a write is under way");
        let first = self.queue.iter().position(|write| write.not_before <= now)?;
        let first = self.queue.remove(first)?;
        let joins = |write: &Write| write.what == What::Requeue && write.refusals == 0;
        if !joins(&first) {
            let job = first.what.job(first.row);
            self.under_way.push(first);
            return Some(job);
        }
        self.under_way.push(first);
        let mut rest = VecDeque::new();
        for write in self.queue.drain(..) {
            if joins(&write) && self.under_way.len() < BATCH {
                self.under_way.push(write);
            } else {
                rest.push_back(write);
            }
        }
        self.queue = rest;
        Some(Job::Requeue { rows: self.under_way.iter().map(|write| write.row).collect() })
    }

    /// The database has them.
    pub(super) fn done(&mut self) -> Vec<Claim> {
        self.under_way.drain(..).map(|write| write.row).collect()
    }

    /// Nothing was written: again later, each alone. How often the first of them has been refused now.
    pub(super) fn refused(&mut self, now: Micros, chance: &mut Chance) -> u32 {
        let mut refusals = 0;
        for mut write in self.under_way.drain(..) {
            let delay = RETRY.saturating_mul(1 << write.refusals.min(10)).min(LONGEST_RETRY);
            write.not_before = now.saturating_add(chance.spread(delay));
            write.refusals += 1;
            refusals = write.refusals;
            self.queue.push_back(write);
        }
        refusals
    }

    /// They may or may not be written: first in line for the next connection.
    pub(super) fn lost(&mut self) {
        for write in self.under_way.drain(..).rev() {
            self.queue.push_front(write);
        }
    }

    /// The end is near: whatever waits for its time is tried at once.
    pub(super) fn hurry(&mut self) {
        for write in &mut self.queue {
            write.not_before = 0;
        }
    }
}
