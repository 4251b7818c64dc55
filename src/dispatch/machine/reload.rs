//! The configuration is read again while mail flows (requirements C2-C4): when, and what a new stage table makes of the
//! old one. The reading itself is a job.
//!
//! Every worker is retired: it gets no new ids, finishes what it was given, and is closed. Until it is gone it counts
//! against PARALLELISM, the new one. What was not handed to it waits for its successor.
//!
//! A stage that was removed stays in the table, without capacity and without rows but those its workers finish, until the
//! last of these is gone. Only then do indexes move, and whoever keeps something by index is told (`restage`).

use super::chance::{Backoff, Chance};
use super::pool::Stage;
use super::worker::Input;
use super::{Claim, Machine, Micros, Severity, StageSpec};

/// Nothing is read and no worker replaced more often, however often it is asked for. Each replacement in a row doubles it,
/// so that sooner or later a worker that starts slowly gets something done in between.
const GAP: Micros = 500_000;
const LONGEST_GAP: Micros = 30_000_000;
/// What comes so long after the last gap is no more in a row with it.
const QUIET: Micros = 60_000_000;
/// While a rereading is awaited nothing is claimed, so that the next message meets the new values; but notifications
/// without end do not stop all claims for longer than this.
const PATIENCE: Micros = 5_000_000;
/// After a reading that came to nothing: also the least time between two that nobody asked for, which have to agree.
const RETRY: Micros = 2_000_000;
const LONGEST_RETRY: Micros = 30_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Why {
    /// Somebody said that the configuration has changed, so what it says now is meant.
    asked: bool,
    /// Workers are replaced even if file and overlay are as they were: what else they read nobody else knows.
    always: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Reload {
    reread_at: Option<Micros>,
    why: Why,
    under_way: Option<Why>,
    /// Never while a rereading is wanted, which then has to do it: each would put the other off.
    retire_at: Option<Micros>,
    /// When it may be read and workers may be replaced again.
    not_before: Micros,
    gap: Micros,
    /// Claims wait until then while a rereading is wanted.
    claims_wait_until: Micros,
    warned: bool,
    backoff: Backoff,
}

impl Reload {
    pub(super) fn new() -> Reload {
        Reload {
            reread_at: None,
            why: Why::default(),
            under_way: None,
            retire_at: None,
            not_before: 0,
            gap: 0,
            claims_wait_until: 0,
            warned: false,
            backoff: Backoff::new(RETRY, LONGEST_RETRY),
        }
    }

    /// The configuration has changed (`asked`), or may have.
    pub(super) fn want(&mut self, now: Micros, asked: bool) {
        if self.reread_at.is_none() && self.under_way.is_none() && now >= self.not_before {
            self.claims_wait_until = now.saturating_add(PATIENCE);
        }
        // A second look that nobody asked for is not brought forward.
        self.reread_at = Some(self.reread_at.filter(|set| !asked || *set < now).unwrap_or(now));
        self.why.asked |= asked;
        self.why.always |= asked | self.retire_at.take().is_some();
    }

    /// Workers are to be replaced, and the table stays.
    fn want_retired(&mut self, now: Micros) {
        if self.reread_at.is_some() {
            self.why.always = true;
        } else {
            self.retire_at.get_or_insert(now);
        }
    }

    pub(super) fn wish(&self) -> Option<Micros> {
        self.reread_at.map(|at| at.max(self.not_before))
    }

    /// From when claims are made all the same.
    pub(super) fn claims_from(&self) -> Micros {
        self.reread_at.map_or(0, |_| self.claims_wait_until)
    }

    fn retire_wish(&self) -> Option<Micros> {
        self.retire_at.map(|at| at.max(self.not_before))
    }

    /// Says whether it was asked for.
    pub(super) fn issued(&mut self) -> bool {
        self.reread_at = None;
        let why = std::mem::take(&mut self.why);
        self.under_way = Some(why);
        why.asked
    }

    /// It was read; whether workers are replaced in any case.
    fn done(&mut self) -> bool {
        self.backoff.reset();
        self.warned = false;
        self.under_way.take().is_some_and(|why| why.always)
    }

    /// The next time is later than this one was.
    fn replaced(&mut self, now: Micros) {
        let is_in_a_row = now < self.not_before.saturating_add(QUIET);
        self.gap = if is_in_a_row { (2 * self.gap).clamp(GAP, LONGEST_GAP) } else { GAP };
        self.not_before = now.saturating_add(self.gap);
        self.retire_at = None;
    }

    /// It came to nothing: the table stays, and no claim waits for the next try, which is later unless it was asked for
    /// meanwhile. True the first time in a row.
    pub(super) fn refused(&mut self, now: Micros, chance: &mut Chance) -> bool {
        if !self.why.asked {
            self.reread_at = Some(now.saturating_add(self.backoff.next(chance)));
        }
        self.lost();
        self.not_before = self.not_before.max(now.saturating_add(GAP));
        self.claims_wait_until = now;
        !std::mem::replace(&mut self.warned, true)
    }

    /// The connection is gone: the next one reads again.
    pub(super) fn lost(&mut self) {
        if let Some(why) = self.under_way.take() {
            self.why.asked |= why.asked;
            self.why.always |= why.always;
        }
    }
}

impl StageSpec {
    pub(super) fn check(&self) {
        assert!(self.parallelism > 0 && self.queue_limit > 0 && self.max_messages > 0, "an empty pool");
    }
}

impl Machine {
    /// Where a stage is among them.
    #[cfg(test)]
    #[allow(dead_code)]
    pub fn place(&self, stage: &str) -> Option<usize> {
        self.stages.iter().position(|pool| pool.spec.name == stage)
    }

    pub(super) fn config_changed(&mut self) {
        self.reload.want(self.now, true);
    }

    pub(super) fn telemetry_changed(&mut self) {
        self.reload.want_retired(self.now);
    }

    /// File and overlay are read. `changes` tells in words what has changed; None: nothing at all.
    pub(super) fn reread(&mut self, specs: Vec<StageSpec>, changes: Option<String>) {
        let always = self.reload.done();
        if self.stop.is_some() || (changes.is_none() && !always) {
            return;
        }
        let changes = changes.unwrap_or_else(|| "nothing has changed in it".to_owned());
        let text = format!("the configuration was read again: {changes}; workers are replaced");
        self.log(Severity::Info, None, text);
        self.rebuild(specs);
        self.replace_workers();
        let back: Vec<Claim> = self.stages.iter_mut().flat_map(Stage::excess).collect();
        for row in back {
            self.requeue(row);
        }
        // Rows of a stage that is new may be due.
        self.sweeps.connected(self.now);
        self.claims.want();
    }

    /// It was read and is wrong: these are the reasons. To go on would be to route by one table while new workers run by
    /// another (C3).
    pub(super) fn malformed(&mut self, code: u8, errors: Vec<String>) {
        self.reload.done();
        for error in errors {
            self.log(Severity::Error, None, error);
        }
        if self.stop.is_none() {
            let text = "stopping: the configuration was read again and is not usable".to_owned();
            self.log(Severity::Error, None, text);
            self.begin(code, true);
        }
    }

    /// At a turn: replaces workers where only that was asked for, and forgets removed stages that are empty.
    pub(super) fn turn_reload(&mut self) {
        if self.stop.is_some() {
            return;
        }
        if self.reload.retire_wish().is_some_and(|at| at <= self.now) {
            let text = "the telemetry switch has changed: workers are replaced".to_owned();
            self.log(Severity::Info, None, text);
            self.replace_workers();
        }
        // Between jobs, on a connection that is up, no claim is under way whose reply speaks of the old indexes.
        if self.jobs.is_up() && !self.jobs.is_busy() && self.stages.iter().any(Stage::is_over) {
            let (kept, was) = std::mem::take(&mut self.stages)
                .into_iter()
                .enumerate()
                .filter(|(_, stage)| !stage.is_over())
                .map(|(place, stage)| (stage, Some(place)))
                .unzip();
            self.restage(kept, was);
        }
    }

    pub(super) fn reload_deadline(&self) -> Option<Micros> {
        self.reload.retire_wish().filter(|_| self.stop.is_none())
    }

    fn replace_workers(&mut self) {
        self.reload.replaced(self.now);
        // The last first: what each gives back goes in front of what waits.
        for worker in self.workers().into_iter().rev() {
            self.worker(worker, Input::Retire);
        }
    }

    /// The new table: stages that stay keep their workers and what is known of them, removed ones come last.
    fn rebuild(&mut self, specs: Vec<StageSpec>) {
        let mut old: Vec<Option<Stage>> = std::mem::take(&mut self.stages).into_iter().map(Some).collect();
        let (mut table, mut was) = (Vec::new(), Vec::new());
        for spec in specs {
            spec.check();
            let is_it = |stage: &Option<Stage>| stage.as_ref().is_some_and(|old| old.spec.name == spec.name);
            let place = old.iter().position(is_it);
            table.push(match place.and_then(|place| old[place].take()) {
                Some(stage) => stage.renewed(spec),
                None => Stage::new(spec),
            });
            was.push(place);
        }
        for (place, left) in old.into_iter().enumerate() {
            if let Some(stage) = left {
                table.push(stage.removed());
                was.push(Some(place));
            }
        }
        self.journal.renew();
        self.restage(table, was);
    }

    /// Other stages from now on: `was` says of each which of the old ones it was.
    fn restage(&mut self, stages: Vec<Stage>, was: Vec<Option<usize>>) {
        self.stages = stages;
        self.claims.fair.restage(&was);
        self.pressure.restage(&was, self.stages.iter().map(|stage| stage.spec.parallelism));
        self.journal.restage(&was);
    }
}
