//! Database overloaded (requirement O1): the stage with the most workers has its parallelism halved for a while.
//!
//! Reports that come within one second are one incident: the four answers of one pipeline do not cut four times.

use super::Micros;

/// How long a cut lasts after the last report that touched its stage.
const WINDOW: Micros = 300_000_000;
/// Reports this close to the last cut tell of the same shortage.
const INCIDENT: Micros = 1_000_000;

#[derive(Clone, Debug)]
struct Cut {
    cap: u32,
    until: Micros,
}

#[derive(Clone, Debug)]
pub(super) struct Pressure {
    parallelism: Vec<u32>,
    cuts: Vec<Option<Cut>>,
    quiet_until: Micros,
}

impl Pressure {
    pub(super) fn new(parallelism: Vec<u32>) -> Pressure {
        Pressure { cuts: vec![None; parallelism.len()], parallelism, quiet_until: 0 }
    }

    /// How many workers the stage may have.
    pub(super) fn cap(&self, stage: usize) -> u32 {
        let all = self.parallelism[stage];
        self.cuts[stage].as_ref().map_or(all, |cut| cut.cap.min(all))
    }

    /// Other stages from now on: which of the old ones each was, and its PARALLELISM.
    pub(super) fn restage(&mut self, was: &[Option<usize>], parallelism: impl Iterator<Item = u32>) {
        let old = std::mem::take(&mut self.cuts);
        self.cuts = was.iter().map(|was| was.and_then(|was| old[was].clone())).collect();
        self.parallelism = parallelism.collect();
    }

    /// A report of overload; `workers` are the processes of each stage. The stage that was cut, and its new cap.
    pub(super) fn report(&mut self, now: Micros, workers: &[u32]) -> Option<(usize, u32)> {
        if now < self.quiet_until {
            return None;
        }
        // Of equals the first.
        let (stage, _) = workers.iter().enumerate().rev().max_by_key(|(_, count)| **count)?;
        let cap = (self.cap(stage) / 2).max(1);
        self.cuts[stage] = Some(Cut { cap, until: now.saturating_add(WINDOW) });
        self.quiet_until = now.saturating_add(INCIDENT);
        Some((stage, cap))
    }

    /// Ends the windows that have passed; the stages that are whole again.
    pub(super) fn expire(&mut self, now: Micros) -> Vec<usize> {
        let over = |cut: &Option<Cut>| cut.as_ref().is_some_and(|cut| now >= cut.until);
        let stages: Vec<usize> = (0..self.cuts.len()).filter(|stage| over(&self.cuts[*stage])).collect();
        for stage in &stages {
            self.cuts[*stage] = None;
        }
        stages
    }

    pub(super) fn deadline(&self) -> Option<Micros> {
        self.cuts.iter().flatten().map(|cut| cut.until).min()
    }
}
