//! One stage's part in a claim: whom it lists, and what the outcome says about its senders.

use super::reach::{Found, Look, Reach};
use super::share::{MAX_LEAD, Share};
use super::{Ask, LEADS, Listed, Micros, Notice, SPARE, Settings, Taken, VISITS, WINDOW};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The lead of a sender that is not to be served by its lead, but in a FIFO slot or where nobody else waits.
const NO_TURN: Micros = 4 * MAX_LEAD;

#[derive(Clone, Debug)]
pub struct Stage {
    pub share: Share,
    pub reach: Reach,
    /// FIFO slots owed, in hundredths, less than one slot (F6).
    owed: u32,
}

/// What came of a claim at one stage.
pub struct Outcome<'a> {
    /// Ids that were taken, by sender.
    taken: BTreeMap<&'a str, Vec<i64>>,
    /// The oldest row seen of each sender, of those not taken.
    pub seen: BTreeMap<&'a str, i64>,
    floor: Option<i64>,
    mark: Option<i64>,
    cursor: Option<&'a str>,
}

impl<'a> Outcome<'a> {
    pub fn new(rows: &[Taken<'a>], notices: &[&'a Notice]) -> Outcome<'a> {
        let mut outcome =
            Outcome { taken: BTreeMap::new(), seen: BTreeMap::new(), floor: None, mark: None, cursor: None };
        for row in rows {
            outcome.taken.entry(row.sender).or_default().push(row.id);
        }
        for notice in notices {
            match notice {
                Notice::Seen { id, sender } => outcome.see(sender, *id),
                Notice::Floor { id } => outcome.floor = Some(*id),
                Notice::Mark { id } => outcome.mark = Some(*id),
                Notice::Cursor { sender } => outcome.cursor = Some(sender),
            }
        }
        outcome
    }

    fn see(&mut self, sender: &'a str, id: i64) {
        // A touched row is told of before it is known whether it is taken.
        if self.taken.get(sender).is_none_or(|ids| !ids.contains(&id)) {
            let oldest = self.seen.entry(sender).or_insert(id);
            *oldest = (*oldest).min(id);
        }
    }

    pub fn found(&self, ask: &Ask) -> Found {
        Found {
            floor: self.floor,
            mark: self.mark,
            cursor: self.cursor.map(str::to_owned),
            fifo_alone: ask.fifo_slots >= ask.capacity,
        }
    }

    fn rows(&self) -> usize {
        self.taken.values().map(Vec::len).sum()
    }
}

impl Stage {
    pub fn new(fair: bool) -> Stage {
        Stage { share: Share::default(), reach: Reach::new(fair), owed: 0 }
    }

    /// What the claim asks for; without a look nothing is claimed here.
    pub fn ask(&self, settings: &Settings, capacity: u32, look: Option<&Look>) -> Ask {
        let mut ask = Ask { average: whole(self.share.average()), ..Ask::default() };
        let Some(look) = look else { return ask };
        ask.capacity = capacity;
        ask.fifo_slots = capacity;
        ask.floor = look.floor;
        ask.mark = look.mark;
        if !settings.fair {
            return ask;
        }
        ask.fifo_slots = self.fifo_slots(settings, capacity);
        if let Some(cursor) = &look.cursor {
            ask.visits = VISITS;
            ask.cursor.clone_from(cursor);
        }
        let (listed, unlisted) = self.list(capacity, ask.fifo_slots);
        ask.senders = listed;
        ask.unlisted = whole(unlisted);
        ask
    }

    /// The share of the oldest rows, carried over from claim to claim so that it is exact at any capacity.
    fn fifo_slots(&self, settings: &Settings, capacity: u32) -> u32 {
        let hundredths =
            u64::from(self.owed) + u64::from(capacity) * u64::from(settings.fifo_percent.min(100));
        u32::try_from(hundredths / 100).unwrap_or(capacity).min(capacity)
    }

    /// The senders that the claim is told of, and the lead of all others. Those that wait and have the least lead are
    /// read. Others are listed so that none of them is taken for a newcomer; where not all could be, nobody is.
    fn list(&self, capacity: u32, fifo_slots: u32) -> (Vec<Listed>, Micros) {
        let mut waiting: Vec<(&String, Micros, i64)> = Vec::new();
        let mut others: Vec<(&String, Micros)> = Vec::new();
        for (name, sender) in self.share.senders() {
            match sender.waits {
                Some(id) => waiting.push((name, sender.lead, id)),
                None if sender.lead > 0 => others.push((name, sender.lead)),
                None => {}
            }
        }
        let wanted = (capacity as usize).saturating_add(capacity as usize / 8).saturating_add(SPARE);
        // Whoever is left out has more lead than those who are read, so its turn does not come.
        let left_out = shorten(&mut waiting, wanted.min(WINDOW), |(_, lead, id)| (*lead, *id));
        others.extend(left_out.iter().map(|(name, _, _)| (*name, NO_TURN)));
        let is_cut = !shorten(&mut others, LEADS, |(_, lead)| Reverse(*lead)).is_empty();
        let leads: Vec<Micros> = waiting.iter().map(|(_, lead, _)| *lead).collect();
        let rows = readings(&leads, capacity, self.share.average());
        // The FIFO slots take the first rows of those that wait longest: their next ones count instead.
        let mut oldest: Vec<i64> = waiting.iter().map(|(_, _, id)| *id).collect();
        oldest.sort_unstable();
        let oldest = fifo_slots.checked_sub(1).and_then(|last| oldest.get(last as usize).or(oldest.last()));
        let read = waiting.iter().zip(rows).map(|((name, lead, id), rows)| Listed {
            sender: (*name).clone(),
            lead: whole(*lead),
            floor: Some(*id),
            rows: rows.max(1).saturating_add(if oldest >= Some(id) { fifo_slots } else { 0 }).min(capacity),
        });
        let others = others.iter().map(|(name, lead)| Listed {
            sender: (*name).clone(),
            lead: whole(*lead),
            floor: None,
            rows: 0,
        });
        (read.chain(others).collect(), if is_cut { NO_TURN } else { 0 })
    }

    /// What the outcome says about who waits, and where their count begins. Charges come after.
    pub fn note(
        &mut self,
        now: Micros,
        settings: &Settings,
        ask: &Ask,
        outcome: &Outcome<'_>,
        is_proof: bool,
    ) {
        if ask.capacity > 0 && outcome.floor.is_none() && is_proof {
            self.share.none_waits();
        } else {
            self.correct(now, ask, outcome, is_proof);
            if !self.share.waiting(&outcome.seen) {
                // Those for whom there was no room have to be found again.
                self.reach.expose(now);
            }
        }
        if ask.capacity > 0 {
            self.share.level(outcome.taken.keys().copied());
            let taken = outcome.rows() as u64 * u64::from(settings.fifo_percent.min(100));
            self.owed = ((u64::from(self.owed) + taken) % 100) as u32;
        }
    }

    /// More waits than was taken: where the rest of each sender begins whose rows were read.
    fn correct(&mut self, now: Micros, ask: &Ask, outcome: &Outcome<'_>, is_proof: bool) {
        for listed in &ask.senders {
            let Some(floor) = listed.floor else { continue };
            // With FIFO slots alone nobody's rows were read; a row that was locked may have been passed over.
            if ask.fifo_slots < ask.capacity && is_proof {
                self.share.begins(&listed.sender, rest(listed, outcome));
            } else if outcome.taken.get(listed.sender.as_str()).is_some_and(|ids| ids.contains(&floor)) {
                self.share.begins(&listed.sender, floor.checked_add(1));
            }
        }
        let is_listed =
            |sender: &str| ask.senders.iter().any(|listed| listed.sender == sender && listed.floor.is_some());
        let mut may_wait = BTreeMap::new();
        for (sender, ids) in outcome.taken.iter().filter(|(sender, _)| !is_listed(sender)) {
            // Whether it has more is not known; the next claim that lists it tells.
            let known = self.share.get(sender).waits;
            let behind = ids.iter().max().and_then(|id| id.checked_add(1));
            if let Some(id) = known.filter(|id| !ids.contains(id)).or(behind) {
                self.share.begins(sender, None);
                may_wait.insert(*sender, id);
            }
        }
        if !self.share.waiting(&may_wait) {
            self.reach.expose(now);
        }
    }
}

/// What is left of a listed sender, as far as its rows were read.
fn rest(listed: &Listed, outcome: &Outcome<'_>) -> Option<i64> {
    let seen = outcome.seen.get(listed.sender.as_str()).copied();
    let taken = outcome.taken.get(listed.sender.as_str());
    // All that were read were taken: the rest, if there is any, begins behind them.
    let behind = taken.filter(|ids| ids.len() >= listed.rows as usize).and_then(|ids| ids.iter().max());
    match (seen, behind.and_then(|id| id.checked_add(1))) {
        (Some(seen), Some(behind)) => Some(seen.min(behind)),
        (seen, behind) => seen.or(behind),
    }
}

/// Cuts to the `most` with the smallest keys, in their order; returns the others.
fn shorten<T, K: Ord>(list: &mut Vec<T>, most: usize, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut rest = Vec::new();
    if list.len() > most {
        list.select_nth_unstable_by_key(most, &key);
        rest = list.split_off(most);
    }
    list.sort_unstable_by_key(key);
    rest
}

/// How many rows each of these leads would fill of so many slots, if each had enough: the rank up to which they are full,
/// found by halving, and what of each lies below it.
fn readings(leads: &[Micros], slots: u32, average: Micros) -> Vec<u32> {
    let below = |rank: Micros, lead: Micros| rank.saturating_sub(lead) / average;
    let fills = |rank: Micros| leads.iter().map(|lead| below(rank, *lead)).sum::<u64>() >= u64::from(slots);
    let least = leads.iter().copied().min().unwrap_or(0);
    let (mut short, mut full) = (least, least.saturating_add(average.saturating_mul(u64::from(slots))));
    while short + 1 < full {
        let middle = short + (full - short) / 2;
        if fills(middle) { full = middle } else { short = middle }
    }
    leads.iter().map(|lead| u32::try_from(below(full, *lead)).unwrap_or(u32::MAX)).collect()
}

fn whole(time: Micros) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}
