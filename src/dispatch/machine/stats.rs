//! Statistics in memory until they are flushed (requirements K1-K3). The dispatcher is their only writer.
//!
//! A flush that met a lost connection may have been committed, so its figures are dropped rather than counted twice;
//! one that was refused goes back and is tried again.

use super::{Blame, Deltas, Micros, StageDelta};
use std::collections::{BTreeMap, BTreeSet};

/// The pipeline may go idle more often than this; it is flushed no more often.
const IDLE_FLUSH: Micros = 1_000_000;
/// A flush is due when this many answered ids are kept: it bounds the memory for them, and how long the flush takes.
const MAX_ANSWERED: usize = 2_000;
/// After a flush that was refused.
const RETRY: Micros = 5_000_000;

#[derive(Clone, Debug)]
pub(super) struct Stats {
    interval: Micros,
    stages: BTreeMap<String, StageDelta>,
    executed: u64,
    failed: u64,
    serialization_failures: u64,
    answered: BTreeSet<i64>,
    /// Messages at stages without a section, as last seen, and whether that figure is written.
    unserved: u64,
    unserved_written: bool,
    under_way: Option<Deltas>,
    last: Micros,
    not_before: Micros,
}

impl Stats {
    pub(super) fn new(interval: Micros) -> Stats {
        Stats {
            interval,
            stages: BTreeMap::new(),
            executed: 0,
            failed: 0,
            serialization_failures: 0,
            answered: BTreeSet::new(),
            unserved: 0,
            unserved_written: true,
            under_way: None,
            last: 0,
            not_before: 0,
        }
    }

    /// The interval counts from here.
    pub(super) fn start(&mut self, now: Micros) {
        self.last = now;
    }

    fn stage(&mut self, name: &str) -> &mut StageDelta {
        self.stages
            .entry(name.to_owned())
            .or_insert_with(|| StageDelta { stage: name.to_owned(), ..StageDelta::default() })
    }

    /// One pass of a worker over row `id`, which took `spent` at the head; `fused` are the successors that ran in it.
    /// Each stage is charged its own time (R1), the pass counts once (K2).
    pub(super) fn pass(&mut self, stage: &str, id: i64, spent: Micros, fused: &[(String, Micros)]) {
        let elsewhere = fused.iter().fold(0, |sum: Micros, (_, time)| sum.saturating_add(*time));
        self.charge(stage, spent.saturating_sub(elsewhere));
        for (name, time) in fused {
            self.charge(name, *time);
        }
        self.executed += 1;
        self.answered.insert(id);
    }

    fn charge(&mut self, stage: &str, time: Micros) {
        let delta = self.stage(stage);
        delta.messages += 1;
        delta.processing_us = delta.processing_us.saturating_add(time);
    }

    pub(super) fn strike(&mut self, stage: &str, blame: Blame) {
        let delta = self.stage(stage);
        match blame {
            Blame::Crashed => delta.crashes += 1,
            Blame::TimedOut => delta.timeouts += 1,
        }
    }

    /// A message came to a terminal state that is not success.
    pub(super) fn failed(&mut self) {
        self.failed += 1;
    }

    pub(super) fn serialization_failure(&mut self) {
        self.serialization_failures += 1;
    }

    /// So many messages wait at stages without a section.
    pub(super) fn unserved(&mut self, count: u64) {
        if self.unserved != count {
            self.unserved = count;
            self.unserved_written = false;
        }
    }

    /// Whether anything would be lost at the end: also rows that were held at the last flush, and were to be asked about later.
    pub(super) fn is_dirty(&self) -> bool {
        self.has_figures() || !self.answered.is_empty()
    }

    fn has_figures(&self) -> bool {
        let counts = self.executed > 0 || self.failed > 0 || self.serialization_failures > 0;
        !self.stages.is_empty() || counts || !self.unserved_written
    }

    /// From when a flush is wanted; `idle`: nothing is in any pipeline.
    pub(super) fn wish(&self, idle: bool) -> Option<Micros> {
        if !self.has_figures() {
            return None;
        }
        let pause = if idle { IDLE_FLUSH.min(self.interval) } else { self.interval };
        let at = if self.answered.len() >= MAX_ANSWERED { 0 } else { self.last.saturating_add(pause) };
        Some(at.max(self.not_before))
    }

    /// What is to be written now. It stays known until `done`, `refused` or `lost` says what became of it.
    /// A row in `held` will be answered again: whether it is finished is asked then, so that it counts once.
    pub(super) fn issue(&mut self, now: Micros, held: &BTreeSet<i64>) -> Deltas {
        self.last = now;
        let again: BTreeSet<i64> = self.answered.intersection(held).copied().collect();
        self.answered.retain(|id| !again.contains(id));
        let deltas = Deltas {
            stages: std::mem::take(&mut self.stages).into_values().collect(),
            executed: std::mem::take(&mut self.executed),
            failed: std::mem::take(&mut self.failed),
            serialization_failures: std::mem::take(&mut self.serialization_failures),
            answered: std::mem::replace(&mut self.answered, again).into_iter().collect(),
            unserved: self.unserved,
        };
        self.unserved_written = true;
        self.under_way = Some(deltas.clone());
        deltas
    }

    pub(super) fn done(&mut self) {
        self.under_way = None;
    }

    /// Nothing was written: the figures are added back.
    pub(super) fn refused(&mut self, now: Micros) {
        self.not_before = now.saturating_add(RETRY);
        self.unserved_written = false;
        let Some(deltas) = self.under_way.take() else { return };
        for delta in deltas.stages {
            let sum = self.stage(&delta.stage);
            sum.messages += delta.messages;
            sum.processing_us = sum.processing_us.saturating_add(delta.processing_us);
            sum.timeouts += delta.timeouts;
            sum.crashes += delta.crashes;
        }
        self.executed += deltas.executed;
        self.failed += deltas.failed;
        self.serialization_failures += deltas.serialization_failures;
        self.answered.extend(deltas.answered);
    }

    /// They may or may not be written: dropped. Whether there were any.
    pub(super) fn lost(&mut self) -> bool {
        self.under_way.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Req: K1
    #[test]
    fn a_flush_is_due_when_idle_after_an_interval_or_when_much_is_kept() {
        let mut stats = Stats::new(60_000_000);
        stats.start(5);
        assert_eq!(stats.wish(true), None, "nothing changed");
        stats.pass("a", 1, 10, &[]);
        assert_eq!(stats.wish(true), Some(5 + IDLE_FLUSH));
        assert_eq!(stats.wish(false), Some(60_000_005));
        for id in 2..MAX_ANSWERED as i64 {
            stats.pass("a", id, 10, &[]);
        }
        assert_eq!(stats.wish(false), Some(60_000_005));
        stats.pass("a", MAX_ANSWERED as i64, 10, &[]);
        assert_eq!(stats.wish(false), Some(0));
        let deltas = stats.issue(7, &BTreeSet::from([1]));
        assert_eq!(deltas.answered.len(), MAX_ANSWERED - 1, "a row in a pipeline is asked about later");
        assert_eq!((deltas.executed, stats.wish(true)), (MAX_ANSWERED as u64, None));
    }
}
