//! The senders of one stage: what each has used there beyond the least-served one, and where its waiting rows begin.
//!
//! Leads are whole microseconds, never negative, at most `MAX_LEAD`. A sender is kept while its lead is worth a message, or
//! something of it waits or runs here (F5), and of those at most `MAX_SENDERS` and what runs (F10). What is thought to wait may
//! be wrong; a claim that looks for it tells.

use super::Micros;
use std::collections::{BTreeMap, BTreeSet};

/// Senders kept for one stage, beyond those of messages that run. With more the foremost are forgotten.
pub const MAX_SENDERS: usize = 1024;
/// About eleven days: far beyond what anybody can use within a few half-lives, far from the end of an i64.
pub const MAX_LEAD: Micros = 1_000_000_000_000;
/// Until the first message of a stage is measured.
pub const ASSUMED_AVERAGE: Micros = 50_000;
/// An average is kept in this range, so that a rank is a number that PostgreSQL can hold.
const LONGEST_AVERAGE: Micros = 10_000_000_000;
/// The newest message counts for one part in this many of the average.
const AVERAGE_OVER: Micros = 8;
/// Leads are halved in so many small steps.
pub const STEPS: u64 = 32;
/// 2^(-1/32) times 2^32.
const STEP_FACTOR: u128 = 4_202_935_003;

/// One sender at one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    pub lead: Micros,
    /// Messages claimed and not settled.
    pub running: u32,
    /// The oldest row that it may have waiting here.
    pub waits: Option<i64>,
}

#[derive(Clone, Debug, Default)]
pub struct Share {
    senders: BTreeMap<String, Sender>,
    average: Option<Micros>,
    /// The step of time up to which leads are decayed.
    step: u64,
}

impl Share {
    pub fn senders(&self) -> &BTreeMap<String, Sender> {
        &self.senders
    }

    pub fn get(&self, sender: &str) -> Sender {
        self.senders.get(sender).copied().unwrap_or_default()
    }

    /// Time of a message: measured, or assumed.
    pub fn average(&self) -> Micros {
        self.average.unwrap_or(ASSUMED_AVERAGE)
    }

    /// A message took that long.
    pub fn measured(&mut self, spent: Micros) {
        let average = match self.average {
            None => spent,
            Some(average) if spent < average => average - (average - spent).div_ceil(AVERAGE_OVER),
            Some(average) => average + (spent - average) / AVERAGE_OVER,
        };
        self.average = Some(average.clamp(1, LONGEST_AVERAGE));
    }

    /// Leads have halved since they were last looked at, once each `STEPS` steps.
    pub fn decay(&mut self, step: u64) {
        let steps = step.saturating_sub(self.step);
        self.step = self.step.max(step);
        if steps == 0 {
            return;
        }
        for sender in self.senders.values_mut() {
            sender.lead = decayed(sender.lead, steps);
        }
        self.forget();
    }

    /// The least-served of those that wait, and of `more`, is where the count begins: whoever is behind it has gained
    /// nothing by being quiet (F4).
    pub fn level<'a>(&mut self, more: impl Iterator<Item = &'a str>) {
        let waiting = self.senders.values().filter(|sender| sender.waits.is_some()).map(|sender| sender.lead);
        let least = waiting.chain(more.map(|sender| self.get(sender).lead)).min();
        let Some(level) = least.filter(|level| *level > 0) else { return };
        for sender in self.senders.values_mut() {
            sender.lead = sender.lead.saturating_sub(level);
        }
    }

    /// Messages of these senders are charged next: room is made for all of them at once.
    pub fn expect<'a>(&mut self, senders: impl Iterator<Item = &'a str>) {
        let new: BTreeSet<&str> = senders.filter(|sender| !self.senders.contains_key(*sender)).collect();
        self.make_room(new.len());
    }

    /// A message of `sender` runs, and is charged in advance. Kept even when the memory is full: what runs is bounded.
    pub fn charge(&mut self, sender: &str, amount: Micros) {
        if !self.senders.contains_key(sender) {
            self.make_room(1);
        }
        let entry = self.senders.entry(sender.to_owned()).or_default();
        entry.lead = entry.lead.saturating_add(amount).min(MAX_LEAD);
        entry.running += 1;
    }

    /// A message that was charged `amount` has ended, and has used `used`.
    pub fn settle(&mut self, sender: &str, amount: Micros, used: Micros) {
        let Some(entry) = self.senders.get_mut(sender) else { return };
        entry.running = entry.running.saturating_sub(1);
        entry.lead = entry.lead.saturating_add(used).saturating_sub(amount).min(MAX_LEAD);
        if self.is_over(&self.get(sender)) {
            self.senders.remove(sender);
        }
    }

    /// Rows that were seen waiting, as sender and id. False when there was no room for all of these senders.
    pub fn waiting(&mut self, seen: &BTreeMap<&str, i64>) -> bool {
        let new: BTreeSet<&str> =
            seen.keys().copied().filter(|sender| !self.senders.contains_key(*sender)).collect();
        let mut room = self.make_room(new.len());
        let all_fit = room >= new.len();
        for (sender, id) in seen {
            if new.contains(sender) {
                if room == 0 {
                    continue;
                }
                room -= 1;
            }
            let entry = self.senders.entry((*sender).to_owned()).or_default();
            entry.waits = Some(entry.waits.map_or(*id, |waits| waits.min(*id)));
        }
        all_fit
    }

    /// What waits of `sender` begins there, or nothing of it waits.
    pub fn begins(&mut self, sender: &str, id: Option<i64>) {
        if let Some(entry) = self.senders.get_mut(sender) {
            entry.waits = id;
        }
    }

    /// Nothing waits at this stage.
    pub fn none_waits(&mut self) {
        for sender in self.senders.values_mut() {
            sender.waits = None;
        }
    }

    /// Drops the senders that need not be remembered.
    pub fn forget(&mut self) {
        let average = self.average();
        self.senders.retain(|_, sender| !is_over(sender, average));
    }

    fn is_over(&self, sender: &Sender) -> bool {
        is_over(sender, self.average())
    }

    /// Makes room for so many new senders, as far as may be: how many there is room for. The foremost of those that run
    /// nothing go; a newcomer has no lead, so only one that is a message ahead of it has to give way.
    fn make_room(&mut self, wanted: usize) -> usize {
        let room = MAX_SENDERS.saturating_sub(self.senders.len());
        if room >= wanted {
            return room;
        }
        self.forget();
        let room = MAX_SENDERS.saturating_sub(self.senders.len());
        if room >= wanted {
            return room;
        }
        let average = self.average();
        let ahead = |sender: &Sender| sender.running == 0 && sender.lead >= average;
        let mut foremost: Vec<(Micros, &String)> = self
            .senders
            .iter()
            .filter(|(_, sender)| ahead(sender))
            .map(|(name, sender)| (sender.lead, name))
            .collect();
        let gone = (wanted - room).min(foremost.len());
        if gone < foremost.len() {
            foremost.select_nth_unstable_by(gone, |one, other| other.cmp(one));
        }
        let gone: Vec<String> = foremost[..gone].iter().map(|(_, name)| (*name).clone()).collect();
        for name in gone {
            self.senders.remove(&name);
        }
        MAX_SENDERS.saturating_sub(self.senders.len())
    }
}

/// Nothing of it is here, and its lead is worth less than a message (F5).
fn is_over(sender: &Sender, average: Micros) -> bool {
    sender.waits.is_none() && sender.running == 0 && sender.lead < average
}

/// A lead after so many steps.
fn decayed(lead: Micros, steps: u64) -> Micros {
    let halvings = u32::try_from(steps / STEPS).unwrap_or(u32::MAX);
    let mut lead = lead.checked_shr(halvings).unwrap_or(0);
    for _ in 0..steps % STEPS {
        lead = ((u128::from(lead) * STEP_FACTOR) >> 32) as Micros;
    }
    lead
}
