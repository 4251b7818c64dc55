//! Work on the queue as a whole: the reconcile of running rows (D2, D7) and the search for strays, and the bodies that no row
//! references (K4). All of it is timing; what a row owes is not decided here.

use super::Micros;
use super::chance::{Backoff, Chance};

/// Bodies deleted in one go (K4).
pub(super) const BODIES_LIMIT: u32 = 10_000;
/// A reconcile that a misbehaving worker asks for comes no sooner than this after the last one.
const RECONCILE_GAP: Micros = 1_000_000;
const RETRY: Micros = 1_000_000;
const LONGEST_RETRY: Micros = 30_000_000;

#[derive(Clone, Debug)]
pub(super) struct Upkeep {
    interval: Micros,
    reconcile_at: Option<Micros>,
    reconcile_last: Micros,
    /// Since this connection was made a reconcile was done. Before, a crash of the server may have forgotten claims, and a
    /// new claim could give out a number that a worker holds (D4).
    reconciled: bool,
    bodies_at: Option<Micros>,
    backoff: Backoff,
}

impl Upkeep {
    pub(super) fn new(interval: Micros) -> Upkeep {
        Upkeep {
            interval,
            reconcile_at: None,
            reconcile_last: 0,
            reconciled: false,
            bodies_at: None,
            backoff: Backoff::new(RETRY, LONGEST_RETRY),
        }
    }

    pub(super) fn reconcile_wish(&self) -> Option<Micros> {
        self.reconcile_at
    }

    pub(super) fn bodies_wish(&self) -> Option<Micros> {
        self.bodies_at
    }

    /// A new connection: rows may be running that nobody holds.
    pub(super) fn connected(&mut self, now: Micros) {
        self.reconcile_at = Some(now);
        self.reconciled = false;
        self.backoff.reset();
    }

    /// The connection is gone, and with it whatever job was under way.
    pub(super) fn lost(&mut self) {
        self.reconcile_at = None;
    }

    /// A worker broke the protocol or died: an answer may have been taken for another row's, which is then running
    /// with nobody to end it: strays are looked for soon.
    pub(super) fn suspect(&mut self, now: Micros) {
        let at = now.max(self.reconcile_last.saturating_add(RECONCILE_GAP));
        self.reconcile_at = Some(self.reconcile_at.map_or(at, |set| set.min(at)));
    }

    /// A worker passed a message. Once an interval bodies are collected, and rows are looked for whose worker said that it
    /// was done and left them running.
    pub(super) fn executed(&mut self, now: Micros) {
        let tick = now.saturating_add(self.interval);
        self.bodies_at.get_or_insert(tick);
        self.reconcile_at.get_or_insert(tick);
    }

    pub(super) fn reconcile_issued(&mut self, now: Micros) {
        self.reconcile_at = None;
        self.reconcile_last = now;
    }

    pub(super) fn bodies_issued(&mut self) {
        self.bodies_at = None;
    }

    pub(super) fn is_reconciled(&self) -> bool {
        self.reconciled
    }

    pub(super) fn reconciled(&mut self) {
        self.reconciled = true;
        self.backoff.reset();
    }

    pub(super) fn reconcile_refused(&mut self, now: Micros, chance: &mut Chance) {
        self.reconcile_at = Some(now.saturating_add(self.backoff.next(chance)));
    }
}
