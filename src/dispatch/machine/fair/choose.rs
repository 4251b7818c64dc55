//! The model of `pepsi.workqueue_claim_fair`: what it must take and report of a given queue (requirement F9). Written for
//! clearness, without any bound on what it costs; tests/fair.rs compares the two on random queues.

use super::{Ask, Listed, Notice};
use std::collections::{BTreeMap, BTreeSet};

/// As in the function.
pub const FRESH_LIMIT: usize = 32;

/// A waiting row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<S = String> {
    pub id: i64,
    pub stage: usize,
    pub sender: S,
}

/// The rows that are taken, and the notices, by stage; both in order, without repetitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    pub taken: BTreeSet<(usize, i64)>,
    pub notices: BTreeSet<(usize, Notice)>,
}

/// A row of the stage looked at: id and sender.
type Waiting<'a> = (i64, &'a str);

/// What a claim of `demands` (one a stage) takes of `queue`, which is in the order of its ids.
pub fn choose<S: AsRef<str>>(queue: &[Row<S>], demands: &[Ask], touched: &[i64]) -> Choice {
    let mut choice = Choice::default();
    for (stage, demand) in demands.iter().enumerate() {
        let here = queue.iter().filter(|row| row.stage == stage);
        let rows: Vec<Waiting<'_>> = here.map(|row| (row.id, row.sender.as_ref())).collect();
        let moved: Vec<Waiting<'_>> = rows.iter().copied().filter(|(id, _)| touched.contains(id)).collect();
        for (id, sender) in &moved {
            choice.notices.insert((stage, Notice::Seen { id: *id, sender: (*sender).to_owned() }));
        }
        let mut look = Look { stage, demand, rows: &rows, moved: &moved, choice: &mut choice };
        look.run();
    }
    choice
}

struct Look<'a> {
    stage: usize,
    demand: &'a Ask,
    rows: &'a [Waiting<'a>],
    moved: &'a [Waiting<'a>],
    choice: &'a mut Choice,
}

impl<'a> Look<'a> {
    fn run(&mut self) {
        let capacity = self.demand.capacity as usize;
        let fifo = self.demand.fifo_slots as usize;
        let floor = self.moved.iter().map(|(id, _)| *id).chain([self.demand.floor]).min().unwrap_or(0);
        let waiting = self.rows.iter().copied().filter(|(id, _)| *id >= floor);
        let oldest: Vec<Waiting<'a>> = waiting.take(capacity + 1).collect();
        if capacity == 0 || oldest.is_empty() {
            return;
        }
        if oldest.len() <= capacity || fifo >= capacity {
            oldest.iter().take(capacity).for_each(|row| self.take(row.0));
            if let Some((id, _)) = oldest.get(capacity) {
                self.notice(Notice::Floor { id: *id });
            }
            return;
        }
        let found = self.find();
        let ranked = self.rank(&oldest, &found, fifo);
        let by_rank = ranked.iter().map(|(_, row)| *row);
        // Those who were thought to wait may have less than that: the oldest rows fill up.
        let filling = oldest.iter().copied().filter(|row| !ranked.iter().any(|(_, other)| other == row));
        let order = by_rank.chain(filling.filter(|row| !oldest[..fifo].contains(row)));
        let taken: Vec<Waiting<'a>> =
            oldest[..fifo].iter().copied().chain(order.take(capacity - fifo)).collect();
        taken.iter().for_each(|row| self.take(row.0));

        // Of each sender the oldest tells all.
        let mut oldest_seen: BTreeMap<&str, i64> = BTreeMap::new();
        let seen = ranked.iter().map(|(_, row)| *row).chain(found);
        for (id, sender) in seen.filter(|row| !taken.contains(row)) {
            let first = oldest_seen.entry(sender).or_insert(id);
            *first = id.min(*first);
        }
        for (sender, id) in oldest_seen {
            self.notice(Notice::Seen { id, sender: sender.to_owned() });
        }
        if let Some((id, _)) = oldest.iter().find(|row| !taken.contains(row)) {
            self.notice(Notice::Floor { id: *id });
        }
    }

    /// Rows that may be of senders not known: the newest, the first of each sender visited, and those that moved here.
    fn find(&mut self) -> Vec<Waiting<'a>> {
        let is_fresh = |row: &Waiting<'_>| row.0 >= self.demand.mark;
        let mut found: Vec<Waiting<'a>> =
            self.rows.iter().copied().filter(is_fresh).take(FRESH_LIMIT).collect();
        if let Some((id, _)) = found.last() {
            self.notice(Notice::Mark { id: *id + 1 });
        }
        let mut first: BTreeMap<&str, i64> = BTreeMap::new();
        for (id, sender) in self.rows.iter().filter(|_| self.demand.visits > 0) {
            first.entry(sender).or_insert(*id);
        }
        let visited: Vec<Waiting<'a>> = first
            .iter()
            .filter(|(sender, _)| **sender > self.demand.cursor.as_str())
            .take(self.demand.visits as usize)
            .map(|(sender, id)| (*id, *sender))
            .collect();
        if let Some((_, sender)) = visited.last()
            && visited.len() == self.demand.visits as usize
        {
            self.notice(Notice::Cursor { sender: (*sender).to_owned() });
        }
        found.extend(visited);
        found.extend(self.moved);
        found
    }

    /// Candidates for the slots that are not FIFO, best first: the k-th oldest of a sender ranks by lead + k * average.
    fn rank(&self, oldest: &[Waiting<'a>], found: &[Waiting<'a>], fifo: usize) -> Vec<(i64, Waiting<'a>)> {
        let demand = self.demand;
        let listed = |sender: &str| demand.senders.iter().find(|listed| listed.sender == sender);
        let is_read = |sender: &str| listed(sender).is_some_and(|listed| listed.floor.is_some());
        let among_oldest = |sender: &str| oldest.iter().any(|(_, other)| *other == sender);
        // By sender, the rows that count.
        let mut candidates: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
        for (id, sender) in oldest.iter().filter(|(_, sender)| !is_read(sender)) {
            candidates.entry(sender).or_default().insert(*id);
        }
        // Of each sender found besides, the oldest row found; none where older ones of it are known.
        let mut besides: Vec<&Waiting<'a>> =
            found.iter().filter(|(_, sender)| !is_read(sender) && !among_oldest(sender)).collect();
        besides.sort_unstable();
        for (id, sender) in besides {
            candidates.entry(sender).or_insert_with(|| BTreeSet::from([*id]));
        }
        for Listed { sender, floor, rows, .. } in &demand.senders {
            let Some(floor) = floor else { continue };
            let own = self.rows.iter().filter(|(id, other)| other == sender && id >= floor);
            for (id, sender) in own.take(*rows as usize) {
                candidates.entry(sender).or_default().insert(*id);
            }
        }
        let mut ranked = Vec::new();
        for (sender, ids) in candidates {
            let lead = listed(sender).map_or(demand.unlisted, |listed| listed.lead);
            for (k, id) in (1..).zip(ids) {
                ranked.push((lead + k * demand.average, (id, sender)));
            }
        }
        ranked.retain(|(_, row)| !oldest[..fifo].contains(row));
        ranked.sort_unstable();
        ranked
    }

    fn take(&mut self, id: i64) {
        self.choice.taken.insert((self.stage, id));
    }

    fn notice(&mut self, notice: Notice) {
        self.choice.notices.insert((self.stage, notice));
    }
}
