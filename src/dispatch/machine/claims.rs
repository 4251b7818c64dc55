//! When to claim (requirements W2, W3): wakes, the heartbeat, rounds that go on, and what follows a claim that failed. What
//! each claim asks for and what its outcome means is `fair`'s: shares of the senders, and how far down it has to look.
//!
//! `fair` hears of all that can make a row pending: a row that leaves a worker, whether answered or not, may be pending
//! anywhere, and the write that puts it back tells so again once it is done; rows that others made pending (notification,
//! sweep, reconcile, a new connection) may be any, and so they may after POLL_INTERVAL, for notifications that were lost.

use super::chance::{Backoff, Chance};
use super::fair::{Fair, Notice, Taken};
use super::{Demand, Job, Micros, Settings};

/// The delays between claims that are not done.
const RETRY: Micros = 500_000;
const LONGEST_RETRY: Micros = 30_000_000;

#[derive(Clone, Debug)]
pub(super) struct Claims {
    poll_interval: Micros,
    pub(super) fair: Fair,
    wanted: bool,
    /// The last heartbeat; no wake puts the next one off.
    beat: Micros,
    not_before: Micros,
    skip_locked: bool,
    asked_skipping: bool,
    /// The next claim looks what else waits: stages without a section, and when the first paused row is due. The heartbeat's
    /// does, so that it costs no statement of its own. If that one fails the next goes without, lest a look that takes too
    /// long be the end of all claims.
    survey: bool,
    /// The claim under way does, or did.
    asked_survey: bool,
    backoff: Backoff,
}

fn has_room(capacities: &[u32]) -> bool {
    capacities.iter().any(|capacity| *capacity > 0)
}

impl Claims {
    pub(super) fn new(settings: &Settings, stages: usize) -> Claims {
        let fair = super::fair::Settings {
            fair: settings.fair,
            half_life: settings.fair_half_life,
            fifo_percent: settings.fair_fifo_percent,
        };
        Claims {
            poll_interval: settings.poll_interval,
            fair: Fair::new(fair, stages),
            wanted: false,
            beat: 0,
            not_before: 0,
            skip_locked: false,
            asked_skipping: false,
            survey: false,
            asked_survey: false,
            backoff: Backoff::new(RETRY, LONGEST_RETRY),
        }
    }

    /// Something may be claimed now that could not before: a wake.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// Others made rows pending.
    pub(super) fn expose(&mut self, now: Micros) {
        self.fair.expose(now);
        self.want();
    }

    /// Row `id` may be pending at any stage.
    pub(super) fn touch(&mut self, id: i64) {
        self.fair.touch(id);
        self.want();
    }

    fn next_beat(&self) -> Micros {
        self.beat.saturating_add(self.poll_interval)
    }

    /// From when a claim with these capacities is wanted: a wake's, for a round that is not over, or the heartbeat's, which
    /// looks what else waits even where there is no stage, or no room.
    pub(super) fn wish(&self, capacities: &[u32]) -> Micros {
        let round = self.fair.round_wish(capacities).unwrap_or(Micros::MAX);
        let at = if self.wanted && has_room(capacities) { 0 } else { self.next_beat().min(round) };
        at.max(self.not_before)
    }

    /// The claim with these capacities of the stages `names`; nothing of the sort may be under way.
    pub(super) fn issue<'a>(
        &mut self,
        now: Micros,
        capacities: &[u32],
        names: impl Iterator<Item = &'a str>,
    ) -> Job {
        if now >= self.next_beat() {
            self.beat = now;
            self.fair.beat();
            self.survey = true;
        }
        // A wake waits for room.
        self.wanted &= !has_room(capacities);
        self.asked_skipping = std::mem::take(&mut self.skip_locked);
        self.asked_survey = std::mem::take(&mut self.survey);
        let (asks, touched) = self.fair.demand(now, capacities, self.asked_skipping);
        let demand = names.zip(asks).map(|(stage, ask)| Demand { stage: stage.to_owned(), ask }).collect();
        Job::Claim { demand, touched, skip_locked: self.asked_skipping, survey: self.asked_survey }
    }

    /// Whether the last claim looked what else waits.
    pub(super) fn has_surveyed(&self) -> bool {
        self.asked_survey
    }

    /// The claim took these rows and saw that; `top` is the greatest id given out so far.
    pub(super) fn done(&mut self, now: Micros, taken: &[Taken<'_>], notices: &[(usize, Notice)], top: i64) {
        self.asked_survey = false;
        self.backoff.reset();
        self.fair.claimed(now, taken, notices, top);
    }

    /// Nothing was claimed. A row may be locked by others, so once it is tried around such rows; then later.
    pub(super) fn refused(&mut self, now: Micros, conflict: bool, chance: &mut Chance) {
        self.fair.not_claimed(now);
        self.wanted = true;
        self.asked_survey = false;
        if conflict && !self.asked_skipping {
            self.skip_locked = true;
        } else {
            self.not_before = now.saturating_add(self.backoff.next(chance));
        }
    }

    /// A new connection: what was asked over the old one may have been claimed, and the reconcile frees it; notifications
    /// may have been missed.
    pub(super) fn connected(&mut self) {
        self.not_before = 0;
        self.skip_locked = false;
        // The connection may be gone for what it looked at.
        self.survey = !std::mem::take(&mut self.asked_survey);
        self.fair.reconnected();
        self.want();
    }
}
